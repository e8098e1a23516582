//! The binary encoding of [`Snapshot`], field by field. After adding a field, increase the number in the header of
//! `snapshot.rs`.

use std::collections::BTreeMap;

use super::{
    FileScan, ReaderImport, RuntimeReads, Snapshot, WorkspaceInput,
    codec::{ByteReader, ByteWriter, Encode, encode_cases, encode_fields},
    graph::{ImportGraph, NodeFile, PackageNode},
    resolve::{ImportContext, ResolvedImport},
    stack_inputs::StackInputs,
};
use crate::konfig::{Clash, EarlierNames, Layout, LayoutRules, PackageKind, Project, SettingsOrder};
use konverge_base::model::{
    ClusterName, CommitId, RepoPath, StackId,
    affected::InputKind,
    file_source::{FileEntry, FileKind, FileTree, Listing, TreeId},
    package_lock::LockedPackage,
    stack::{CompileSetup, Entry, EntryPackage, NamedBy, RemotePackage, SetupError, Stack},
    stack_output::{OutputName, StackReads},
};

encode_fields!(FileScan: imports, reader_import, reads);
encode_cases!(ReaderImport: Closed, Open, Renamed);

encode_fields!(Snapshot: commit, listing, core, rules, layout, graph, nodes, inputs, config,
    workspaces, digests);
encode_fields!(WorkspaceInput: files, secret_files, digest);
encode_cases!(SettingsOrder: V07, V090, V091);
encode_fields!(LayoutRules: order, exclude, include, identities);
encode_fields!(Listing: tree, files);
encode_fields!(FileEntry: blob, kind);
encode_cases!(FileKind: File, Symlink, Submodule);

encode_fields!(Layout: stacks, projects, problems, has_module, has_globs, clashes, left_out,
    in_packages, packages, unseen);
encode_fields!(Clash: identity, folders);
encode_cases!(PackageKind: Vendored, Dependency);
encode_cases!(NamedBy: Names, Folder, Config);
encode_fields!(Project: folder, name, tenant, earlier);
encode_fields!(EarlierNames: tenant, name);
encode_fields!(Stack: id, names, earlier_names, named_by, folder, project_folder, manifest, compile,
    cluster, kubeconfig, reads);
encode_fields!(SetupError: file, line, column, message);
encode_fields!(CompileSetup: work_dir, module_root, entries, options, overrides, path_selector,
    disable_none, strict_range_check, packages, remote_packages, settings_files);
encode_fields!(Entry: path, package);
encode_fields!(RemotePackage: name, declared, requirement, locked);
encode_fields!(LockedPackage: checksum, commit, reference, version, address);

encode_fields!(PackageNode: place, context, files, edges, links, data, local);
encode_fields!(NodeFile: path, blob, reader_import, reads);
encode_fields!(ImportContext: root, packages);
encode_fields!(StackInputs: entries, files, settings, options, settings_files, error);
encode_cases!(InputKind: Import, Entry, Settings, Options, Project, Stack, Module, Data, Crd,
    Config, Compiler, Moved, Unresolved, Workspace);

impl Encode for ImportGraph {
    fn put(&self, out: &mut ByteWriter) {
        self.contexts.put(out);
        self.nodes.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self::from_parts(Encode::take(from)?, Encode::take(from)?))
    }
}

encode_cases!(RuntimeReads: Nothing, Anything; Named);
encode_cases!(EntryPackage: Main; Root, Dependency);
encode_cases!(ResolvedImport: ; File, Package, EntryFolder);

impl Encode for TreeId {
    fn put(&self, out: &mut ByteWriter) {
        konverge_base::model::file_source::BlobId(self.0).put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        konverge_base::model::file_source::BlobId::take(from).map(|id| Self(id.0))
    }
}

impl Encode for FileTree {
    fn put(&self, out: &mut ByteWriter) {
        (self.len() as u32).put(out);
        for (path, entry) in self {
            path.put(out);
            entry.put(out);
        }
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let files = Vec::<(RepoPath, FileEntry)>::take(from)?;
        Some(BTreeMap::from_iter(files))
    }
}

macro_rules! names {
    ($($name:ty),*) => {$(
        impl Encode for $name {
            fn put(&self, out: &mut ByteWriter) {
                self.as_str().to_owned().put(out);
            }
            fn take(from: &mut ByteReader<'_>) -> Option<Self> {
                Self::try_from(String::take(from)?).ok()
            }
        }
    )*};
}
names!(StackId, CommitId, ClusterName, OutputName);

impl Encode for StackReads {
    fn put(&self, out: &mut ByteWriter) {
        let reads = self.iter().map(|(alias, stack)| (alias.clone(), stack.clone()));
        reads.collect::<Vec<_>>().put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        Some(Vec::<(OutputName, StackId)>::take(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affected::codec::{bytes_of, value_of};

    #[test]
    fn what_is_read_at_run_time_is_kept() {
        for reads in [
            RuntimeReads::Nothing,
            RuntimeReads::Named(vec!["a".to_owned(), "b".to_owned()]),
            RuntimeReads::Anything,
        ] {
            assert_eq!(value_of::<RuntimeReads>(&bytes_of(&reads)), Some(reads));
        }
        assert_eq!(
            value_of::<RuntimeReads>(&bytes_of(&(3_u8, Vec::<String>::new()))),
            None
        );
    }
}
