//! The scanner and the graph of files against the core's own word on what a program loads.

use std::path::Path;

use konverge_base::model::{RepoPath, stack::Entry};
use konverge_repo::affected::{ScanCache, scan};

use crate::{
    affected::core_oracle::Oracle,
    affected::random_edits::analysis,
    affected::random_repository::{Dice, Files},
};

/// The files that the scanner's graph loads are those that the core says it loads.
#[test]
fn closures_of_the_example_are_the_cores_own() {
    let root = crate::support::root().join("konfig-example");
    let files = checkout(&root);
    let analysis = analysis(&files, &ScanCache::new());
    let mut oracle = Oracle::start();
    assert!(analysis.layout().stacks.len() >= 8, "the example has its stacks");
    for stack in &analysis.layout().stacks {
        let setup = stack.compile.as_ref().unwrap();
        let closure = analysis.closure(stack).unwrap();
        let ours: Vec<_> = closure
            .files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| path.ends_with(".k"))
            .collect();
        for how in ["paths", "package"] {
            let (theirs, errors) = oracle.paths(how, &root, setup).unwrap();
            assert_eq!(errors, 0, "{}", stack.id);
            let readable: Vec<_> = ours
                .iter()
                .filter(|path| !theirs.iter().any(|known| known == *path))
                .collect();
            let missing: Vec<_> = theirs
                .iter()
                .filter(|path| !ours.contains(&path.as_str()))
                .collect();
            assert!(missing.is_empty(), "{}: {how}: missing {missing:?}", stack.id);
            // What is more than the core loads may only be what it could read as data.
            for path in readable {
                let folder = RepoPath::normalize(path).unwrap().parent().unwrap();
                let reads = ours.iter().any(|reader| {
                    let bytes = std::fs::read(root.join(reader)).unwrap();
                    let reads = scan(&bytes)
                        .iter()
                        .any(|import| ["file", "crypto"].contains(&import.first()));
                    reads && folder.is_within(&RepoPath::normalize(reader).unwrap().parent().unwrap())
                });
                assert!(reads, "{}: {how}: {path} is more than the core loads", stack.id);
            }
        }
    }
}

/// Texts made of what fools a scanner: what the core loads for them is what the scanner finds.
#[test]
fn scanner_agrees_with_the_core_on_hostile_texts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["a", "b", "c"] {
        std::fs::write(root.join(format!("{name}.k")), "v = 1\n").unwrap();
    }
    std::fs::write(root.join("kcl.mod"), "").unwrap();
    let mut oracle = Oracle::start();
    let setup = konverge_base::model::stack::CompileSetup {
        entries: vec![Entry::main(RepoPath::normalize("main.k").unwrap())],
        ..Default::default()
    };
    let pieces = [
        "import a",
        "import b",
        "import c as d",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\t",
        "x = 1",
        "x = ",
        "\"",
        "'",
        "\"\"\"",
        "'''",
        "r\"",
        "R'",
        "\\",
        "\\\n",
        "#",
        "# import a",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "if True:\n    ",
        "schema S:\n    ",
        "    import b\n",
        ":",
        ".",
        "import .a",
        "import . b",
        "import",
        "as",
        "a",
        "y: int = 1 ",
        "$import",
        "important",
        "lambda {",
        "${",
        "\u{b}",
        "\u{2028}",
        "\u{a0}",
        "é",
        "\"import a\"",
        "\n\n",
        "x = \"\"\"\nimport a\n\"\"\"\n",
        "x = {\n  \"import\": 1\n}\n",
        "import a.b",
        "assert True\n",
        ";",
        "@",
    ];
    let cases = std::env::var("KONVERGE_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(300);
    let mut valid = 0;
    for seed in 0..cases {
        let mut dice = Dice(seed);
        let count = 1 + dice.roll(9);
        let tidy = dice.chance(60);
        let text: String = (0..count)
            .map(|_| {
                let piece = *dice.pick(&pieces);
                if tidy {
                    format!("{piece}\n")
                } else {
                    piece.to_owned()
                }
            })
            .collect();
        std::fs::write(root.join("main.k"), &text).unwrap();
        let Ok((loaded, errors)) = oracle.paths("paths", root, &setup) else {
            continue;
        };
        let core: Vec<_> = loaded
            .iter()
            .map(|path| path.trim_end_matches(".k"))
            .filter(|path| *path != "main")
            .collect();
        let mut ours: Vec<_> = scan(text.as_bytes())
            .into_iter()
            .filter(|import| import.dots < 2 && ["a", "b", "c"].contains(&import.path.as_str()))
            .map(|import| import.path)
            .collect();
        ours.sort();
        ours.dedup();
        let missed: Vec<_> = core
            .iter()
            .filter(|path| !ours.iter().any(|known| known == *path))
            .collect();
        if errors == 0 {
            valid += 1;
            assert_eq!(ours, core, "seed {seed}: {text:?}");
        } else if !missed.is_empty() {
            // A text that the core refuses has no Spec: missing an import of it changes nothing until it is fixed.
            continue;
        }
    }
    println!("{valid} of {cases} texts were valid KCL");
    assert!(valid * 20 > cases, "{valid} of {cases}");
}

fn checkout(root: &Path) -> Files {
    let mut files = Files::default();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                files.put(path.strip_prefix(root).unwrap().to_str().unwrap(), text);
            }
        }
    }
    files
}
