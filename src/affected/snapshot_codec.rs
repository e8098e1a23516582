//! The binary forms of what [`Kept`] holds, field by field. A new field is a new number in its header.

use std::collections::BTreeMap;

use super::{
    Door, Facts, Kept, Reads,
    codec::{Form, Reader, Writer, form_of, form_of_choice},
    graph::{Graph, Node, NodeFile},
    stack_inputs::StackInputs,
    resolve::{Context, Place},
};
use crate::{
    konfig::{Clash, Layout, LayoutRules, PackageKind, Project, SettingsOrder},
    model::{
        ClusterName, CommitId, RepoPath, StackId,
        affected::InputKind,
        file_source::{FileEntry, FileKind, FileTree, Listing, TreeId},
        stack::{CompileSetup, Entry, EntryPackage, NamedBy, RemotePackage, SetupError, Stack},
    },
};

form_of!(Facts { imports, door, reads });
form_of_choice!(Door: Closed, Open, Renamed);

form_of!(Kept {
    commit,
    listing,
    core,
    rules,
    layout,
    graph,
    nodes,
    inputs,
    config,
    digests,
});
form_of_choice!(SettingsOrder: V07, V090, V091);
form_of!(LayoutRules {
    order,
    exclude,
    identities,
});
form_of!(Listing { tree, files });
form_of!(FileEntry { blob, kind });
form_of_choice!(FileKind: File, Symlink, Submodule);

form_of!(Layout {
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
form_of!(Clash { identity, folders });
form_of_choice!(PackageKind: Vendored, Dependency);
form_of_choice!(NamedBy: Names, Folder, Config);
form_of!(Project { folder, name, tenant });
form_of!(Stack {
    id,
    names,
    named_by,
    folder,
    project_folder,
    compile,
    cluster,
    kubeconfig,
});
form_of!(SetupError {
    file,
    line,
    column,
    message,
});
form_of!(CompileSetup {
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
form_of!(Entry { path, package });
form_of!(RemotePackage {
    name,
    requirement,
    checksum,
});

form_of!(Node {
    place,
    context,
    files,
    edges,
    links,
    data,
    local,
});
form_of!(NodeFile {
    path,
    blob,
    door,
    reads,
});
form_of!(Context { root, packages });
form_of!(StackInputs {
    entries,
    files,
    settings,
    options,
    settings_files,
    error,
});
form_of_choice!(InputKind: Import, Entry, Settings, Options, Project, Stack, Module, Data, Crd, Config, Compiler, Moved, Unresolved);

impl Form for Graph {
    fn put(&self, out: &mut Writer) {
        self.contexts.put(out);
        self.nodes.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self::of_parts(Form::take(from)?, Form::take(from)?))
    }
}

impl Form for Reads {
    fn put(&self, out: &mut Writer) {
        let (kind, names): (u8, &[String]) = match self {
            Self::Nothing => (0, &[]),
            Self::Named(names) => (1, names),
            Self::Anything => (2, &[]),
        };
        kind.put(out);
        names.to_vec().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (kind, names) = <(u8, Vec<String>)>::take(from)?;
        match kind {
            0 => Some(Self::Nothing),
            1 => Some(Self::Named(names)),
            2 => Some(Self::Anything),
            _ => None,
        }
    }
}

impl Form for EntryPackage {
    fn put(&self, out: &mut Writer) {
        let (kind, text): (u8, &str) = match self {
            Self::Main => (0, ""),
            Self::Root(root) => (1, root.as_str()),
            Self::Dependency(name) => (2, name),
        };
        kind.put(out);
        text.to_owned().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (kind, text) = <(u8, String)>::take(from)?;
        match kind {
            0 => Some(Self::Main),
            1 => RepoPath::normalise(&text).map(Self::Root),
            2 => Some(Self::Dependency(text)),
            _ => None,
        }
    }
}

impl Form for Place {
    fn put(&self, out: &mut Writer) {
        let (kind, path): (u8, _) = match self {
            Self::File(path) => (0, path),
            Self::Package(path) => (1, path),
            Self::EntryFolder(path) => (2, path),
        };
        kind.put(out);
        path.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (kind, path) = <(u8, RepoPath)>::take(from)?;
        match kind {
            0 => Some(Self::File(path)),
            1 => Some(Self::Package(path)),
            2 => Some(Self::EntryFolder(path)),
            _ => None,
        }
    }
}

impl Form for TreeId {
    fn put(&self, out: &mut Writer) {
        crate::model::file_source::BlobId(self.0).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        crate::model::file_source::BlobId::take(from).map(|id| Self(id.0))
    }
}

impl Form for FileTree {
    fn put(&self, out: &mut Writer) {
        (self.len() as u32).put(out);
        for (path, entry) in self {
            path.put(out);
            entry.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let files = Vec::<(RepoPath, FileEntry)>::take(from)?;
        Some(BTreeMap::from_iter(files))
    }
}

macro_rules! names {
    ($($name:ty),*) => {$(
        impl Form for $name {
            fn put(&self, out: &mut Writer) {
                self.as_str().to_owned().put(out);
            }
            fn take(from: &mut Reader<'_>) -> Option<Self> {
                Self::try_from(String::take(from)?).ok()
            }
        }
    )*};
}
names!(StackId, CommitId, ClusterName);
