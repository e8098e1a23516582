//! Which stacks a change affects, of a small repository in memory.

use super::{
    Analysis, GraphExport, ScanCache, Snapshot, data_files,
    fixture::{analysis, path, source},
};
use crate::konfig::{Changes, FileTreeView, SettingsOrder};
use konverge_base::model::{
    Digest,
    affected::{InputChange, InputKind},
};

/// An affected stack: its identity, its change, and the kinds and paths of the reasons.
type Row = (String, InputChange, Vec<(InputKind, String)>);

fn affected(base: &Analysis, head: &Analysis) -> Vec<Row> {
    let stacks = head.compare(base).stacks.into_iter().map(|stack| {
        let reasons = stack
            .why
            .iter()
            .map(|reason| (reason.kind, reason.path.to_string()));
        (stack.id.to_string(), stack.change, reasons.collect())
    });
    stacks.collect()
}

const MAIN: (&str, &str) = ("shop/dev/main.k", "a = 1\n");

#[test]
fn each_input_is_the_reason_of_its_change() {
    for (file, before, after, kind) in [
        ("shop/dev/main.k", "a = 1\n", "a = 2\n", InputKind::Entry),
        (
            "shop/project.yaml",
            "name: shop\n",
            "name: shop\nlabels: {a: b}\n",
            InputKind::Project,
        ),
        (
            "shop/dev/stack.yaml",
            "name: dev\n",
            "name: dev\nlabels: {a: b}\n",
            InputKind::Stack,
        ),
        (
            "kcl.mod",
            "[package]\nname = \"mono\"\n",
            "[package]\nname = \"mono\"\nversion = \"2.0.0\"\n",
            InputKind::Module,
        ),
        (
            "kcl.mod",
            "[package]\nname = \"mono\"\n",
            "[package]\nname = \"mono\"\n\n[profile]\ndisable_none = true\n",
            InputKind::Module,
        ),
        ("shop/crd/x.yaml", "a: 1\n", "a: 2\n", InputKind::Crd),
        (
            "shop/dev/kcl.yaml",
            "kcl_cli_configs:\n  file: [main.k]\n",
            "kcl_cli_configs:\n  file: [main.k]\n  disable_none: true\n",
            InputKind::Settings,
        ),
        (
            "shop/dev/kcl.yaml",
            "kcl_cli_configs:\n  file: [main.k]\n",
            "kcl_cli_configs:\n  file: [main.k]\nkcl_options:\n- {key: a, value: b}\n",
            InputKind::Options,
        ),
    ] {
        let base = analysis(&[MAIN, ("readme.md", "a"), (file, before)]);
        let head = analysis(&[MAIN, ("readme.md", "b"), (file, after)]);
        let expected = (
            "shop/dev".to_owned(),
            InputChange::Modified,
            vec![(kind, file.to_owned())],
        );
        assert_eq!(affected(&base, &head), [expected], "{file}");
        assert!(affected(&base, &analysis(&[MAIN, ("readme.md", "b"), (file, before)])).is_empty());
    }
}

#[test]
fn a_stack_is_added_removed_moved_and_renamed() {
    let one = analysis(&[MAIN]);
    let more = [
        ("shop/prod/stack.yaml", "name: prod\n"),
        ("shop/prod/kcl.yaml", "kcl_cli_configs:\n  file: [main.k]\n"),
        ("shop/prod/main.k", "a = 1\n"),
    ];
    let two = analysis(&[MAIN, more[0], more[1], more[2]]);
    let own = vec![(InputKind::Stack, "shop/prod/stack.yaml".to_owned())];
    let change = |change| ("shop/prod".to_owned(), change, own.clone());
    assert_eq!(affected(&one, &two), [change(InputChange::Added)]);
    assert_eq!(affected(&two, &one), [change(InputChange::Removed)]);

    let moved = analysis(&[
        MAIN,
        ("shop/live/stack.yaml", "name: prod\n"),
        ("shop/live/kcl.yaml", more[1].1),
        ("shop/live/main.k", "a = 1\n"),
    ]);
    let reasons = vec![(InputKind::Moved, "shop/prod/stack.yaml".to_owned())];
    assert_eq!(
        affected(&two, &moved),
        [("shop/prod".to_owned(), InputChange::Modified, reasons)]
    );
}

#[test]
fn a_package_of_a_dependency_is_an_input_of_who_imports_it() {
    let repository = |ext: &str, other: &str| {
        analysis(&[
            (
                "kcl.mod",
                "[package]\nname = \"mono\"\n\n[dependencies]\next = { path = \"vendor/ext\" }\nother = { path = \"vendor/other\" }\n",
            ),
            ("vendor/ext/kcl.mod", "[package]\nname = \"ext\"\n"),
            ("vendor/ext/deep/a.k", ext),
            ("vendor/other/kcl.mod", "[package]\nname = \"other\"\n"),
            ("vendor/other/deep/a.k", other),
            ("shop/dev/main.k", "import ext.deep\n"),
        ])
    };
    let base = repository("a = 1\n", "a = 1\n");
    assert!(affected(&base, &repository("a = 1\n", "a = 2\n")).is_empty());
    let reasons = vec![(InputKind::Import, "vendor/ext/deep/a.k".to_owned())];
    assert_eq!(
        affected(&base, &repository("a = 2\n", "a = 1\n")),
        [("shop/dev".to_owned(), InputChange::Modified, reasons)]
    );
}

#[test]
fn an_analysis_after_another_one_is_the_same_as_a_new_one() {
    let base = analysis(&[
        ("shop/dev/main.k", "import lib\n"),
        ("lib/a.k", "a = 1\n"),
        ("lib/b.k", "b = 1\n"),
    ]);
    for edit in [
        ("shop/dev/main.k", "import lib.a\n"),
        ("lib/a.k", "import other\n"),
        ("lib/c.k", "c = 1\n"),
        (
            "shop/dev/kcl.yaml",
            "kcl_cli_configs:\n  file: [main.k]\n  disable_none: true\n",
        ),
        ("shop/dev/stack.yaml", "name: test\n"),
        ("other/a.k", "a = 1\n"),
    ] {
        let head = analysis(&[
            ("shop/dev/main.k", "import lib\n"),
            ("lib/a.k", "a = 1\n"),
            ("lib/b.k", "b = 1\n"),
            edit,
        ]);
        let tree = FileTreeView::new(head.tree.source().clone());
        let changes = Changes::compute(&base.tree, &tree);
        let after = Analysis::after(
            &base,
            &changes,
            tree,
            head.layout.clone(),
            "0.13.2",
            &ScanCache::new(),
        )
        .unwrap();
        assert_eq!(after.digests, head.digests, "{}", edit.0);
        assert_eq!(affected(&base, &after), affected(&base, &head), "{}", edit.0);
        assert!(affected(&head, &after).is_empty(), "{}", edit.0);
    }
}

#[test]
fn an_analysis_from_a_snapshot_is_the_same() {
    let texts = [
        ("shop/dev/kcl.yaml", "kcl_cli_configs:\n  file: ['.']\n"),
        ("shop/dev/main.k", "import lib\nimport lib2.a\n"),
        ("lib/a.k", "a = 1\n"),
        ("lib2/a.k", "a = 1\n"),
    ];
    let base = analysis(&texts);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("revision");
    Snapshot::take(&base, SettingsOrder::V090)
        .unwrap()
        .save(&file)
        .unwrap();
    let loaded = Snapshot::load(&file).unwrap();
    let loaded = loaded.into_analysis(base.tree.source().clone());
    assert_eq!(loaded.digests, base.digests);
    assert_eq!(loaded.picture(), base.picture());
    assert!(affected(&base, &loaded).is_empty());
}

#[test]
fn a_drawing_has_a_form_for_each_kind_of_node() {
    let analysis = analysis(&[
        (
            "shop/dev/main.k",
            "import lib\nimport file\na = file.read(\"x.txt\")\n",
        ),
        ("lib/a.k", "a = 1\n"),
        ("shop/dev/x.txt", "x"),
    ]);
    let picture: GraphExport = analysis.picture();
    let mermaid = picture.mermaid();
    assert!(mermaid.starts_with("graph LR\n"), "{mermaid}");
    for node in ["([\"shop/dev\"])", "[[\"lib\"]]", "[\"lib/a.k\"]"] {
        assert!(mermaid.contains(node), "{node}: {mermaid}");
    }
    assert_eq!(mermaid.matches(" --> ").count(), picture.edges.len());
    assert_eq!(
        mermaid.lines().count(),
        1 + picture.nodes.len() + picture.edges.len()
    );
}

#[test]
fn the_files_of_a_folder_are_found_through_links() {
    let source = source(&[
        ("data/a.txt", "a"),
        ("data/file", "-> ../other/b.txt"),
        ("data/folder", "-> ../more"),
        ("more/c.txt", "c"),
        ("more/back", "-> ../data"),
        ("other/b.txt", "b"),
        ("other/d.txt", "d"),
    ]);
    let tree = FileTreeView::new(source);
    let found = |folder: &str| {
        let files = data_files::files(&tree, &path(folder)).into_iter();
        files.map(|(path, ..)| path.to_string()).collect::<Vec<_>>()
    };
    let whole = [
        "data/a.txt",
        "data/file",
        "data/folder",
        "more/back",
        "more/c.txt",
        "other/b.txt",
    ];
    assert_eq!(found("data"), whole);
    assert_eq!(found("other/b.txt"), ["other/b.txt"]);
    assert!(found("none").is_empty());
}

#[test]
fn what_a_file_reads_at_run_time_is_an_input() {
    let repository = |read: &str, beside: &str| {
        analysis(&[
            ("shop/dev/main.k", "import file\na = file.read(\"x.txt\")\n"),
            ("shop/dev/x.txt", read),
            ("shop/dev/y.txt", beside),
        ])
    };
    let base = repository("a", "a");
    let reasons = vec![(InputKind::Data, "shop/dev/x.txt".to_owned())];
    assert_eq!(
        affected(&base, &repository("b", "a")),
        [("shop/dev".to_owned(), InputChange::Modified, reasons)]
    );
    assert!(affected(&base, &repository("a", "b")).is_empty());
}

#[test]
fn an_entry_reads_by_the_import_of_another_entry() {
    let repository = |text: &str| {
        analysis(&[
            (
                "shop/dev/kcl.yaml",
                "kcl_cli_configs:\n  file: [main.k, other.k]\n",
            ),
            ("shop/dev/main.k", "import file\n"),
            ("shop/dev/other.k", "a = file.read(\"y.txt\")\n"),
            ("shop/dev/y.txt", text),
        ])
    };
    let reasons = vec![(InputKind::Data, "shop/dev/y.txt".to_owned())];
    assert_eq!(
        affected(&repository("a"), &repository("b")),
        [("shop/dev".to_owned(), InputChange::Modified, reasons)]
    );
}

#[test]
fn imports_in_a_circle_have_an_end() {
    let repository = |text: &str| {
        analysis(&[
            ("shop/dev/main.k", "import one\n"),
            ("one/a.k", "import two\n"),
            ("two/a.k", "import one\n"),
            ("two/b.k", text),
        ])
    };
    let reasons = vec![(InputKind::Import, "two/b.k".to_owned())];
    assert_eq!(
        affected(&repository("b = 1\n"), &repository("b = 2\n")),
        [("shop/dev".to_owned(), InputChange::Modified, reasons)]
    );
}

#[test]
fn other_files_of_a_known_package_are_no_reason_and_a_new_package_is_one() {
    let repository = |readme: &str, text: &str| {
        analysis(&[
            ("shop/dev/main.k", "import lib\nimport other\n"),
            ("lib/a.k", "import other\n"),
            ("lib/readme.md", readme),
            ("other/a.k", text),
        ])
    };
    let import = |path: &str| vec![(InputKind::Import, path.to_owned())];
    assert_eq!(
        affected(&repository("a", "a = 1\n"), &repository("b", "a = 2\n")),
        [("shop/dev".to_owned(), InputChange::Modified, import("other/a.k"))]
    );
    // A folder hides the file of the same name, whatever it contains.
    let file = [("shop/dev/main.k", "import lib.a\n"), ("lib/a.k", "a = 1\n")];
    let hidden = analysis(&[file[0], file[1], ("lib/a/x.md", "x")]);
    assert_eq!(
        affected(&analysis(&file), &hidden),
        [("shop/dev".to_owned(), InputChange::Modified, import("lib/a/x.md"))]
    );
}

#[test]
fn a_stack_is_renamed_by_another_one_with_its_names() {
    let web = ("shop/project.yaml", "name: web\n");
    let one = analysis(&[MAIN, web]);
    let two = analysis(&[
        MAIN,
        web,
        ("shop/prod/stack.yaml", "name: prod\n"),
        ("shop/prod/kcl.yaml", "kcl_cli_configs:\n  file: [main.k]\n"),
        ("shop/prod/main.k", "a = 1\n"),
        ("twin/project.yaml", "name: web\n"),
        ("twin/dev/stack.yaml", "name: dev\n"),
        ("twin/dev/kcl.yaml", "kcl_cli_configs:\n  file: [main.k]\n"),
        ("twin/dev/main.k", "a = 1\n"),
    ]);
    let twin = vec![(InputKind::Stack, "twin/dev/stack.yaml".to_owned())];
    let stack = |id: &str, change| (id.to_owned(), change, twin.clone());
    let prod = |change| {
        let own = vec![(InputKind::Stack, "shop/prod/stack.yaml".to_owned())];
        ("web/prod".to_owned(), change, own)
    };
    let (modified, added, removed) = (InputChange::Modified, InputChange::Added, InputChange::Removed);
    assert_eq!(
        affected(&one, &two),
        [stack("shop/dev", modified), prod(added), stack("twin/dev", added)]
    );
    assert_eq!(
        affected(&two, &one),
        [
            stack("web/dev", modified),
            prod(removed),
            stack("twin/dev", removed)
        ]
    );
}

#[test]
fn a_stack_that_cannot_be_resolved_is_affected_in_its_place() {
    let broken = analysis(&[
        MAIN,
        ("shop/dev/kcl.yaml", "kcl_cli_configs:\n  file: [none.k]\n"),
    ]);
    let reasons = affected(&analysis(&[MAIN]), &broken).remove(0).2;
    assert!(reasons.iter().any(|(_, path)| path == "shop/dev/kcl.yaml"));
}

#[test]
fn settings_of_konverge_yaml_are_an_input() {
    let with = |config: Option<&str>| {
        let config = config.map(|text| Digest::of_bytes(text.as_bytes()));
        analysis(&[MAIN]).with_config(|_| config)
    };
    let reasons = vec![(InputKind::Config, "konverge.yaml".to_owned())];
    let modified = [("shop/dev".to_owned(), InputChange::Modified, reasons)];
    assert_eq!(affected(&with(None), &with(Some("a"))), modified);
    assert_eq!(affected(&with(Some("a")), &with(Some("b"))), modified);
    assert_eq!(affected(&with(Some("a")), &with(None)), modified);
    assert!(affected(&with(Some("a")), &with(Some("a"))).is_empty());
    assert_eq!(with(None).digests, analysis(&[MAIN]).digests);
}

#[test]
fn modules_of_the_core_are_no_packages_of_the_repository() {
    let repository = |text: &str| {
        analysis(&[
            ("shop/dev/main.k", "import math\nimport kcl_plugin.hello\n"),
            ("math/a.k", text),
            ("kcl_plugin/hello/a.k", text),
        ])
    };
    assert!(affected(&repository("a = 1\n"), &repository("a = 2\n")).is_empty());
}

#[test]
fn another_core_is_the_reason_for_every_stack() {
    let base = analysis(&[MAIN]);
    let tree = FileTreeView::new(base.tree.source().clone());
    let changes = Changes::compute(&base.tree, &tree);
    let layout = base.layout.clone();
    let head = Analysis::after(&base, &changes, tree, layout, "0.12.3", &ScanCache::new()).unwrap();
    let reasons = vec![(InputKind::Compiler, "konverge.yaml".to_owned())];
    assert_eq!(
        affected(&base, &head),
        [("shop/dev".to_owned(), InputChange::Modified, reasons)]
    );
}

/// A test changes no Spec: its stack is affected, and the input digest stays.
#[test]
fn a_stack_test_makes_its_stack_affected_and_is_not_in_the_digest() {
    let with = |tests: &[(&'static str, &'static str)]| {
        let all: Vec<_> = [MAIN].into_iter().chain(tests.iter().copied()).collect();
        analysis(&all)
    };
    let none = with(&[]);
    let one = with(&[("shop/dev/test/a.test.yaml", "name: a\n")]);
    let edited = with(&[("shop/dev/test/a.test.yaml", "name: b\n")]);
    let other = with(&[
        ("shop/dev/test/notes.yaml", "a: 1\n"),
        ("shop/test/a.test.yaml", "name: a\n"),
    ]);
    let deep = with(&[
        ("shop/dev/test/deep/a.test.yaml", "-> ../../../shared.yaml"),
        ("shop/shared.yaml", "name: a\n"),
    ]);
    let row = |path: &str| {
        vec![(
            "shop/dev".to_owned(),
            InputChange::Modified,
            vec![(InputKind::Test, path.to_owned())],
        )]
    };
    for (base, head, expected) in [
        (&none, &one, row("shop/dev/test/a.test.yaml")),
        (&one, &edited, row("shop/dev/test/a.test.yaml")),
        (&edited, &none, row("shop/dev/test/a.test.yaml")),
        (&none, &deep, row("shop/dev/test/deep/a.test.yaml")),
        (&none, &other, Vec::new()),
        (&one, &one, Vec::new()),
    ] {
        assert_eq!(affected(base, head), expected);
        let digest = |of: &Analysis| of.input_digest(&of.layout().stacks[0]).unwrap();
        assert_eq!(digest(base), digest(head));
    }
}
