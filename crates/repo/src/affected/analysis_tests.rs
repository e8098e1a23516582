//! What a change affects and why, of a small repository in memory.

use std::sync::Arc;

use super::{
    Analysis, MixedImport, ScanCache, Snapshot, WorkspaceInput,
    fixture::{analysis, path},
    graph::ImportGraph,
};
use crate::konfig::{LayoutRules, SettingsOrder};
use konverge_base::model::{
    Digest,
    affected::{InputKind, InputReason},
    file_source::FileKind,
};

/// The reasons for the one stack that is affected.
fn reasons(base: &Analysis, head: &Analysis) -> Vec<InputReason> {
    let mut stacks = head.compare(base).stacks;
    assert_eq!(stacks.len(), 1);
    stacks.remove(0).why
}

/// Each reason as its kind and its chain of paths.
fn chains(base: &Analysis, head: &Analysis) -> Vec<(InputKind, String)> {
    let reasons = reasons(base, head).into_iter().map(|reason| {
        let chain: Vec<_> = reason.chain.iter().map(ToString::to_string).collect();
        (reason.kind, chain.join(" "))
    });
    reasons.collect()
}

#[test]
fn the_shortest_chain_of_all_entries_is_shown() {
    for entries in ["../base/base.k, main.k", "main.k, ../base/base.k"] {
        let settings = format!("kcl_cli_configs:\n  file: [{entries}]\n");
        let repository = |lib: &str| {
            analysis(&[
                ("shop/dev/kcl.yaml", &settings),
                ("shop/base/base.k", "import far\n"),
                ("shop/dev/main.k", "import lib\n"),
                ("far/far.k", "import lib\n"),
                ("lib/lib.k", lib),
            ])
        };
        let expected = [(InputKind::Import, "lib/lib.k shop/dev/main.k shop/dev".to_owned())];
        assert_eq!(
            chains(&repository("a = 1"), &repository("a = 2")),
            expected,
            "{entries}"
        );
    }
}

/// Imports with dots come after the others.
#[test]
fn of_many_changed_files_the_nearest_are_shown_by_name() {
    let repository = |text: &str| {
        let main: String = (0..60)
            .map(|n| format!("import z{n:02}\nimport ..a{n:02}\n"))
            .collect();
        let files: Vec<_> = (0..60)
            .flat_map(|n| [format!("z{n:02}/a.k"), format!("shop/a{n:02}/a.k")])
            .collect();
        let mut texts = vec![("shop/dev/main.k", main.as_str())];
        texts.extend(files.iter().map(|file| (file.as_str(), text)));
        analysis(&texts)
    };
    let found = reasons(&repository("a = 1"), &repository("a = 2"));
    let paths: Vec<_> = found.iter().map(|reason| reason.path.to_string()).collect();
    let expected: Vec<_> = (0..50).map(|n| format!("shop/a{n:02}/a.k")).collect();
    assert_eq!(paths, expected);
}

#[test]
fn all_entries_may_have_changed() {
    let repository = |text: &str| {
        let files: Vec<_> = (0..60).map(|n| format!("shop/dev/e{n:02}.k")).collect();
        let mut texts = vec![
            ("shop/dev/kcl.yaml", "kcl_cli_configs:\n  file: ['.']\n"),
            ("shop/dev/main.k", "import lib\n"),
            ("lib/lib.k", text),
        ];
        texts.extend(files.iter().map(|file| (file.as_str(), text)));
        analysis(&texts)
    };
    let found = reasons(&repository("a = 1"), &repository("a = 2"));
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|reason| reason.kind == InputKind::Entry));
}

#[test]
fn the_files_of_all_chains_are_bounded() {
    let repository = |text: &str| {
        let packages: Vec<_> = (0..98)
            .map(|n| (format!("p{n}/a.k"), format!("import p{}\n", n + 1)))
            .collect();
        let last: Vec<_> = (0..40).map(|n| format!("p98/f{n:02}.k")).collect();
        let mut texts = vec![("shop/dev/main.k", "import p0\n")];
        texts.extend(
            packages
                .iter()
                .map(|(file, import)| (file.as_str(), import.as_str())),
        );
        texts.extend(last.iter().map(|file| (file.as_str(), text)));
        analysis(&texts)
    };
    let found = reasons(&repository("a = 1"), &repository("a = 2"));
    // A chain has the changed file, 98 packages, the entry and the folder of the stack.
    assert!(found.iter().all(|reason| reason.chain.len() == 101));
    assert_eq!(found.len(), 19);
}

#[test]
fn a_changed_secret_file_is_the_reason_of_a_changed_workspace() {
    let repository = |text: &str, digest: &str| {
        let input = WorkspaceInput {
            files: vec![path("workspaces/dev.yaml")],
            secret_files: vec![path("secrets/pay.yaml")],
            digest: Digest::of_bytes(digest.as_bytes()),
        };
        analysis(&[
            ("shop/dev/main.k", "a = 1\n"),
            ("secrets/pay.yaml", text),
            ("workspaces/dev.yaml", "a: 1\n"),
        ])
        .with_workspaces(|_| Some(input.clone()))
    };
    let base = repository("a", "a");
    assert_eq!(
        chains(&base, &repository("b", "b")),
        [(InputKind::Data, "secrets/pay.yaml shop/dev".to_owned())]
    );
    assert_eq!(
        chains(&base, &repository("a", "b")),
        [(InputKind::Config, "konverge.yaml shop/dev".to_owned())]
    );
}

#[test]
fn a_file_that_is_imported_beside_its_package_is_named() {
    let found = |main: &str| {
        let analysis = analysis(&[
            ("shop/dev/main.k", main),
            ("lib/a.k", "a = 1\n"),
            ("lib/b.k", "b = 1\n"),
        ]);
        analysis.half_packages(&analysis.layout.stacks[0]).unwrap()
    };
    let mixed = MixedImport {
        by: path("shop/dev/main.k"),
        file: path("lib/a.k"),
        package: path("lib"),
    };
    assert_eq!(found("import lib\nimport lib.a\n"), [mixed]);
    assert_eq!(found("import lib\n"), []);
    assert_eq!(found("import lib.a\n"), []);
}

#[test]
fn a_linked_file_of_a_package_is_known_by_its_link() {
    let analysis = analysis(&[
        ("shop/dev/main.k", "import lib\n"),
        ("lib/a.k", "a = 1\n"),
        ("lib/link.k", "-> ../other/b.k"),
        ("other/b.k", "b = 1\n"),
    ]);
    assert_eq!(
        analysis.tree.source().files()[&path("lib/link.k")].kind,
        FileKind::Symlink
    );
    let links: Vec<_> = analysis.graph.nodes.iter().flat_map(|node| &node.links).collect();
    assert_eq!(links, [&path("lib/link.k")]);
}

/// A snapshot after an edit; `None` if it is not taken for whole.
fn reload(edit: impl FnOnce(&mut Snapshot)) -> Option<Snapshot> {
    let analysis = analysis(&[
        (
            "shop/dev/main.k",
            "import lib\nimport file\na = file.read(\"x.txt\")\n",
        ),
        ("lib/a.k", "a = 1\n"),
        ("x.txt", "x"),
    ]);
    let mut snapshot = Snapshot::take(&analysis, SettingsOrder::V091).unwrap();
    drop(analysis);
    edit(&mut snapshot);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("revision");
    snapshot.save(&file).unwrap();
    Snapshot::load(&file)
}

#[test]
fn a_snapshot_keeps_the_rules_of_its_layout() {
    let snapshot = reload(|_| {}).unwrap();
    assert_eq!(*snapshot.layout_rules(), LayoutRules::from(SettingsOrder::V091));
    assert_ne!(*snapshot.layout_rules(), LayoutRules::default());
}

#[test]
fn a_snapshot_with_a_wrong_length_or_index_is_none() {
    type Edit = fn(&mut Snapshot);
    let lengths: [(&str, Edit); 5] = [
        ("inputs", |snapshot| snapshot.inputs.clear()),
        ("config", |snapshot| snapshot.config.push(None)),
        ("workspaces", |snapshot| snapshot.workspaces.push(None)),
        ("digests", |snapshot| snapshot.digests.clear()),
        ("nodes", |snapshot| Arc::make_mut(&mut snapshot.nodes).clear()),
    ];
    let indices: [(&str, Edit); 5] = [
        ("entries", |snapshot| {
            let nodes = snapshot.graph.nodes.len();
            Arc::get_mut(&mut snapshot.inputs[0]).unwrap().entries.push(nodes);
        }),
        ("contexts", |snapshot| {
            let contexts = snapshot.graph.contexts.len();
            graph(snapshot).nodes[0].context = contexts;
        }),
        ("edges", |snapshot| {
            let nodes = snapshot.graph.nodes.len();
            graph(snapshot).nodes[0].edges[0].0 = nodes;
        }),
        ("importers", |snapshot| {
            let node = &mut graph(snapshot).nodes[0];
            node.edges[0].1 = node.files.len();
        }),
        ("readers", |snapshot| {
            let node = &mut graph(snapshot).nodes[0];
            node.data[0].1 = node.files.len();
        }),
    ];
    for (what, edit) in lengths.into_iter().chain(indices) {
        assert!(reload(edit).is_none(), "{what}");
    }
}

fn graph(snapshot: &mut Snapshot) -> &mut ImportGraph {
    let graph = Arc::make_mut(&mut snapshot.graph);
    let node = graph
        .nodes
        .iter()
        .position(|node| !node.edges.is_empty() && !node.data.is_empty())
        .unwrap();
    graph.nodes.swap(0, node);
    graph
}

#[test]
fn a_snapshot_lies_beside_the_scan_cache() {
    let (caches, repository) = (std::path::Path::new("/caches"), tempfile::tempdir().unwrap());
    let index = ScanCache::location(caches, repository.path()).unwrap();
    let expected = index.with_extension("revision");
    assert_eq!(Snapshot::location(caches, repository.path()), Some(expected));
}

#[test]
fn each_stack_has_inputs_of_its_own() {
    let prod = [
        ("shop/prod/stack.yaml", "name: prod\n"),
        ("shop/prod/kcl.yaml", "kcl_cli_configs:\n  file: [main.k]\n"),
        ("shop/prod/main.k", "a = 2\n"),
    ];
    let two = analysis(&[("shop/dev/main.k", "a = 1\n"), prod[0], prod[1], prod[2]]);
    let stacks = &two.layout.stacks;
    let digests: Vec<_> = stacks
        .iter()
        .map(|stack| two.input_digest(stack).unwrap())
        .collect();
    assert_eq!(digests, two.digests);
    assert_ne!(digests[0], digests[1]);
    let one = analysis(&[("shop/dev/main.k", "a = 1\n")]);
    assert_eq!(one.input_digest(&stacks[0]).unwrap(), digests[0]);
    assert!(one.input_digest(&stacks[1]).is_err());
}
