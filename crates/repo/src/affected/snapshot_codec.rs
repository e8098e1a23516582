//! The binary encoding of [`Snapshot`], field by field. After adding a field, increase the number in the header of
//! `snapshot.rs`.

use std::collections::BTreeMap;

use super::{
    FileScan, ReaderImport, RuntimeReads, Snapshot, WorkspaceInput,
    codec::{ByteReader, ByteWriter, Encode, encode_choice, encode_fields},
    graph::{ImportGraph, NodeFile, PackageNode},
    resolve::{ImportContext, ResolvedImport},
    stack_inputs::StackInputs,
};
use crate::konfig::{Clash, Layout, LayoutRules, PackageKind, Project, SettingsOrder};
use konverge_base::model::{
    ClusterName, CommitId, RepoPath, StackId,
    affected::InputKind,
    file_source::{FileEntry, FileKind, FileTree, Listing, TreeId},
    package_lock::LockedPackage,
    stack::{CompileSetup, Entry, EntryPackage, NamedBy, RemotePackage, SetupError, Stack},
};

encode_fields!(FileScan {
    imports,
    reader_import,
    reads
});
encode_choice!(ReaderImport: Closed, Open, Renamed);

encode_fields!(Snapshot {
    commit,
    listing,
    core,
    rules,
    layout,
    graph,
    nodes,
    inputs,
    config,
    workspaces,
    digests,
});
encode_fields!(WorkspaceInput {
    files,
    secret_files,
    digest
});
encode_choice!(SettingsOrder: V07, V090, V091);
encode_fields!(LayoutRules {
    order,
    exclude,
    include,
    identities,
});
encode_fields!(Listing { tree, files });
encode_fields!(FileEntry { blob, kind });
encode_choice!(FileKind: File, Symlink, Submodule);

encode_fields!(Layout {
    stacks,
    projects,
    problems,
    has_module,
    has_globs,
    clashes,
    left_out,
    in_packages,
    packages,
    unseen,
});
encode_fields!(Clash { identity, folders });
encode_choice!(PackageKind: Vendored, Dependency);
encode_choice!(NamedBy: Names, Folder, Config);
encode_fields!(Project { folder, name, tenant });
encode_fields!(Stack {
    id,
    names,
    named_by,
    folder,
    project_folder,
    manifest,
    compile,
    cluster,
    kubeconfig,
});
encode_fields!(SetupError {
    file,
    line,
    column,
    message,
});
encode_fields!(CompileSetup {
    work_dir,
    module_root,
    entries,
    options,
    overrides,
    path_selector,
    disable_none,
    strict_range_check,
    packages,
    remote_packages,
    settings_files,
});
encode_fields!(Entry { path, package });
encode_fields!(RemotePackage {
    name,
    declared,
    requirement,
    locked,
});
encode_fields!(LockedPackage {
    checksum,
    commit,
    reference,
    version,
    address,
});

encode_fields!(PackageNode {
    place,
    context,
    files,
    edges,
    links,
    data,
    local,
});
encode_fields!(NodeFile {
    path,
    blob,
    reader_import,
    reads,
});
encode_fields!(ImportContext { root, packages });
encode_fields!(StackInputs {
    entries,
    files,
    settings,
    options,
    settings_files,
    error,
});
encode_choice!(InputKind: Import, Entry, Settings, Options, Project, Stack, Module, Data, Crd, Config, Compiler, Moved, Unresolved, Workspace);

impl Encode for ImportGraph {
    fn put(&self, out: &mut ByteWriter) {
        self.contexts.put(out);
        self.nodes.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self::from_parts(Encode::take(from)?, Encode::take(from)?))
    }
}

impl Encode for RuntimeReads {
    fn put(&self, out: &mut ByteWriter) {
        let (kind, names): (u8, &[String]) = match self {
            Self::Nothing => (0, &[]),
            Self::Named(names) => (1, names),
            Self::Anything => (2, &[]),
        };
        kind.put(out);
        names.to_vec().put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, names) = <(u8, Vec<String>)>::take(from)?;
        match kind {
            0 => Some(Self::Nothing),
            1 => Some(Self::Named(names)),
            2 => Some(Self::Anything),
            _ => None,
        }
    }
}

impl Encode for EntryPackage {
    fn put(&self, out: &mut ByteWriter) {
        let (kind, text): (u8, &str) = match self {
            Self::Main => (0, ""),
            Self::Root(root) => (1, root.as_str()),
            Self::Dependency(name) => (2, name),
        };
        kind.put(out);
        text.to_owned().put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, text) = <(u8, String)>::take(from)?;
        match kind {
            0 => Some(Self::Main),
            1 => RepoPath::normalize(&text).map(Self::Root),
            2 => Some(Self::Dependency(text)),
            _ => None,
        }
    }
}

impl Encode for ResolvedImport {
    fn put(&self, out: &mut ByteWriter) {
        let (kind, path): (u8, _) = match self {
            Self::File(path) => (0, path),
            Self::Package(path) => (1, path),
            Self::EntryFolder(path) => (2, path),
        };
        kind.put(out);
        path.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, path) = <(u8, RepoPath)>::take(from)?;
        match kind {
            0 => Some(Self::File(path)),
            1 => Some(Self::Package(path)),
            2 => Some(Self::EntryFolder(path)),
            _ => None,
        }
    }
}

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
names!(StackId, CommitId, ClusterName);

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
