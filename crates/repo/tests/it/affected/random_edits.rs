//! Affected stacks against the official core: whatever the core shows to have changed must be in the answer.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use konverge_base::model::{
    RepoPath,
    affected::{InputChange, InputKind},
    file_source::FileKind,
    stack::Stack,
};
use konverge_repo::{
    affected::{Analysis, CoreRules, ScanCache, Snapshot},
    konfig::{Changes, FileTreeView, Layout, LayoutReader, SettingsOrder},
};
use serde_json::Value;

use crate::{
    affected::core_oracle::Oracle,
    affected::random_repository::{Content, Dice, Files, edit, monorepo},
    affected::rare_layouts,
};

const CORE: &str = "0.13.2";
const ORDER: SettingsOrder = SettingsOrder::V090;

struct Side {
    analysis: Analysis,
    specs: BTreeMap<String, Result<Value, String>>,
}

pub fn analysis(files: &Files, index: &ScanCache) -> Analysis {
    analysis_in(ORDER, files, index)
}

fn analysis_in(order: SettingsOrder, files: &Files, index: &ScanCache) -> Analysis {
    let source = files.source();
    let layout = Layout::read(&source, order).unwrap();
    Analysis::new(source, layout, CORE, index).unwrap()
}

/// As [`analysis`], by way of another revision's.
fn derived(before: &Analysis, files: &Files) -> Analysis {
    derived_in(ORDER, before, files)
}

fn derived_in(order: SettingsOrder, before: &Analysis, files: &Files) -> Analysis {
    let tree = FileTreeView::new(files.source());
    let changes = Changes::compute(before.tree(), &tree);
    let layout = LayoutReader::new().layout_after(before.layout(), &changes, &tree, &order.into());
    Analysis::after(before, &changes, tree, layout.unwrap(), CORE, &ScanCache::new()).unwrap()
}

/// What an earlier run kept of a revision, as the next run reads it.
fn kept(order: SettingsOrder, analysis: &Analysis, files: &Files, place: &Path) -> Analysis {
    let kept = Snapshot::take(analysis, order).unwrap();
    kept.save(place).unwrap();
    Snapshot::load(place)
        .expect("what was kept is read")
        .into_analysis(files.source())
}

/// What a stack comes to: the core's answer and the project's CRDs. Every refusal is the same refusal: it has no Spec.
fn spec(files: &Files, oracle: &mut Oracle, root: &Path, stack: &Stack) -> Result<Value, String> {
    let setup = stack.compile.as_ref().map_err(|_| "unresolved".to_owned())?;
    let spec = oracle.compile(root, setup).map_err(|_| "refused".to_owned())?;
    let crd = format!("{}/crd/", stack.project_folder);
    let crds: Vec<_> = files
        .0
        .iter()
        .filter(|(path, _)| path.starts_with(&crd))
        .collect();
    Ok(serde_json::json!([spec, format!("{crds:?}")]))
}

fn side(order: SettingsOrder, files: &Files, index: &ScanCache, oracle: &mut Oracle, root: &Path) -> Side {
    files.lay(root);
    let analysis = analysis_in(order, files, index);
    let specs = analysis
        .layout()
        .stacks
        .iter()
        .map(|stack| (stack.id.to_string(), spec(files, oracle, root, stack)))
        .collect();
    Side { analysis, specs }
}

/// The closure laid out alone: what a worker sees.
fn lay_closure(files: &Files, analysis: &Analysis, stack: &Stack, root: &Path) {
    let closure = analysis.closure(stack).unwrap();
    let mut alone = Files::default();
    for file in &closure.files {
        let content = files.0[file.path.as_str()].clone();
        assert_eq!(
            file.kind == FileKind::Symlink,
            matches!(content, Content::Link(_)),
            "{}",
            file.path
        );
        alone.0.insert(file.path.to_string(), content);
    }
    alone.lay(root);
    for folder in closure.folders.iter().chain([&stack.folder]) {
        std::fs::create_dir_all(root.join(folder.as_str())).unwrap();
    }
}

fn one_case(seed: u64, shape: Shape, oracle: &mut Oracle, root: &Path) -> (usize, usize, usize) {
    let mut dice = Dice(seed);
    let index = ScanCache::new();
    let mut before_files = monorepo(&mut dice);
    // Dice of their own: a seed that found something among what is common stays what it was.
    let mut rare = Dice(!seed);
    let mut order = ORDER;
    if shape == Shape::Rarer {
        order = rare_layouts::order(&mut rare);
        rare_layouts::add(&mut rare, &mut before_files);
    }
    let before = side(order, &before_files, &index, oracle, root);
    let mut after_files = before_files.clone();
    let edits: Vec<_> = (0..1 + dice.roll(2))
        .map(|_| match shape {
            Shape::Rarer if rare.chance(60) => rare_layouts::edit(&mut rare, &mut after_files),
            _ => edit(&mut dice, &mut after_files),
        })
        .collect();
    let after = side(order, &after_files, &index, oracle, root);
    let answer = after.analysis.compare(&before.analysis);
    // By way of the other revision, and of what a run before kept of it, the answer is the same.
    let place = root.with_extension("revision");
    for known in [
        derived_in(order, &before.analysis, &after_files),
        derived_in(
            order,
            &kept(order, &before.analysis, &before_files, &place),
            &after_files,
        ),
    ] {
        // That there was a glob may be remembered longer than there is one: it only has more looked at.
        let (told, layout) = (known.layout(), after.analysis.layout());
        assert!(told.has_globs || !layout.has_globs, "seed {seed}: {edits:?}");
        let has_globs = layout.has_globs;
        let told = Layout {
            has_globs,
            ..Layout::clone(told)
        };
        assert_eq!(told, **layout, "seed {seed}: {edits:?}");
        for stack in &known.layout().stacks {
            assert_eq!(
                known.input_digest(stack).unwrap(),
                after.analysis.input_digest(stack).unwrap(),
                "seed {seed}: {} by way of the base; edits: {edits:?}",
                stack.id
            );
            assert_eq!(
                known.closure(stack).ok(),
                after.analysis.closure(stack).ok(),
                "seed {seed}"
            );
        }
        assert_eq!(known.compare(&before.analysis), answer, "seed {seed}: {edits:?}");
        assert_eq!(
            known.picture(),
            after.analysis.picture(),
            "seed {seed}: {edits:?}"
        );
    }
    let named: BTreeMap<_, _> = answer
        .stacks
        .iter()
        .map(|stack| (stack.id.to_string(), stack))
        .collect();
    // An identity changes where a clash of names comes or goes: such a stack is named by what it is called now.
    let (was, is) = (before.analysis.layout(), after.analysis.layout());
    let now: BTreeMap<_, _> = is
        .stacks
        .iter()
        .filter_map(|stack| {
            Some((
                is.predecessor_of(was, stack)?.id.to_string(),
                stack.id.to_string(),
            ))
        })
        .collect();
    let mut changed = 0;
    for id in before.specs.keys().chain(after.specs.keys()) {
        if before.specs.get(id) != after.specs.get(id) {
            changed += 1;
            let stacks = &after.analysis.layout().stacks;
            let stand_in = stacks
                .iter()
                .any(|stack| stack.id.as_str() == id && stack.compile.is_err());
            assert!(
                named.contains_key(now.get(id).unwrap_or(id))
                    || (stand_in && !after.analysis.layout().identities_certain()),
                "seed {seed}: the Spec of {id} differs and it is not in the answer; edits: {edits:?}\nbefore {:?}\nafter {:?}",
                before.specs.get(id),
                after.specs.get(id),
            );
        }
    }
    for stack in &answer.stacks {
        assert!(
            !stack.why.is_empty(),
            "seed {seed}: {} is named without a reason; edits: {edits:?}",
            stack.id
        );
        for reason in &stack.why {
            assert_eq!(reason.chain.first(), Some(&reason.path), "seed {seed}");
        }
        // What cannot be resolved is always named.
        let unresolved = stack.why.iter().any(|why| why.kind == InputKind::Unresolved);
        if edits == ["nothing"] && !unresolved {
            panic!("seed {seed}: {} is named though nothing changed", stack.id);
        }
    }
    // A stack that compiles in the whole checkout compiles to the same in its closure alone.
    let stacks = &after.analysis.layout().stacks;
    if let Some(stack) = stacks.get(dice.roll(stacks.len().max(1)))
        && let Ok(setup) = &stack.compile
    {
        let alone = root.with_extension("closure");
        lay_closure(&after_files, &after.analysis, stack, &alone);
        let there = oracle.compile(&alone, setup).map_err(|_| ());
        after_files.lay(root);
        let here = oracle.compile(root, setup).map_err(|_| ());
        assert_eq!(
            there, here,
            "seed {seed}: {} differs in its closure alone; edits: {edits:?}",
            stack.id
        );
    }
    (
        changed,
        answer.stacks.len(),
        after.specs.values().filter(|spec| spec.is_ok()).count(),
    )
}

/// What a case is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Common,
    /// With what is rarer in a monorepo.
    Rarer,
}

/// A random monorepo, a random edit, every stack compiled before and after. `KONVERGE_CASES` (or `PROPTEST_CASES`) and
/// `KONVERGE_SEED` make it longer or repeat one.
#[test]
fn no_stack_whose_spec_differs_is_missed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KONVERGE_SEED").unwrap_or(1);
    let cases = number("KONVERGE_CASES")
        .or(number("PROPTEST_CASES"))
        .unwrap_or(150);
    let folder = tempfile::tempdir().unwrap();
    let mut oracle = Oracle::start();
    let (mut changed, mut named, mut compiled) = (0, 0, 0);
    println!("seeds {first}..{}", first + cases);
    for seed in first..first + cases {
        let (c, n, ok) = one_case(seed, Shape::Rarer, &mut oracle, &folder.path().join("repo"));
        changed += c;
        named += n;
        compiled += ok;
    }
    println!(
        "{cases} cases: {changed} Specs changed, {named} stacks named, {compiled} compiled after the edit"
    );
    // The generator must make what it is for: repositories that compile, and edits that matter.
    assert!(
        cases < 100 || (changed as u64 * 2 > cases && compiled as u64 * 2 > cases),
        "{changed} {compiled}"
    );
}

/// One line in a shared package: the chain says by itself why.
#[test]
fn the_shortest_chain_is_told() {
    let mut files = Files::default();
    files.put("kcl.mod", "");
    files.put("base/pkg/model.k", "size = 1\n");
    files.put("base/pkg/extra.k", "extra = 1\n");
    files.put("base/render/render.k", "import base.pkg\n\nshown = pkg.size\n");
    files.put("apps/shop/project.yaml", "name: shop\n");
    files.put("apps/shop/dev/stack.yaml", "name: dev\n");
    files.put("apps/shop/dev/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n");
    files.put("apps/shop/dev/main.k", "import base.render\n\nx = render.shown\n");
    let index = ScanCache::new();
    let before = analysis(&files, &index);
    files.put("base/pkg/model.k", "size = 2\n");
    let answer = analysis(&files, &index).compare(&before);
    let chain: Vec<_> = answer.stacks[0].why[0]
        .chain
        .iter()
        .map(RepoPath::as_str)
        .collect();
    assert_eq!(answer.stacks[0].why.len(), 1);
    assert_eq!(
        chain,
        [
            "base/pkg/model.k",
            "base/render/render.k",
            "apps/shop/dev/main.k",
            "apps/shop/dev"
        ]
    );
}

#[test]
fn a_moved_stack_is_neither_removed_nor_added() {
    let index = ScanCache::new();
    let mut files = monorepo(&mut Dice(3));
    let before = analysis(&files, &index);
    let old: Vec<_> = files
        .0
        .keys()
        .filter(|path| path.starts_with("apps/a0/"))
        .cloned()
        .collect();
    for path in old {
        let content = files.0.remove(&path).unwrap();
        files.0.insert(path.replacen("apps/a0/", "moved/a0/", 1), content);
    }
    let answer = analysis(&files, &index).compare(&before);
    let changes: Vec<_> = answer
        .stacks
        .iter()
        .map(|stack| (stack.id.as_str(), stack.change))
        .collect();
    assert_eq!(
        changes,
        [
            ("a0/dev", InputChange::Modified),
            ("a0/prod", InputChange::Modified)
        ]
    );
}

#[test]
fn a_broken_file_takes_no_other_stack_down_and_removes_none() {
    let index = ScanCache::new();
    let mut files = monorepo(&mut Dice(5));
    let before = analysis(&files, &index);
    files.put("apps/a0/dev/stack.yaml", "name: [\n");
    let answer = analysis(&files, &index).compare(&before);
    let named: Vec<_> = answer
        .stacks
        .iter()
        .map(|stack| (stack.id.as_str(), stack.change))
        .collect();
    assert_eq!(named, [("a0/dev", InputChange::Modified)]);
    files.put("apps/a0/dev/stack.yaml", "name: dev\n");
    files.put("apps/a0/project.yaml", "name: {\n");
    let answer = analysis(&files, &index).compare(&before);
    let named: Vec<_> = answer
        .stacks
        .iter()
        .map(|stack| (stack.id.as_str(), stack.change))
        .collect();
    assert_eq!(
        named,
        [
            ("a0/dev", InputChange::Modified),
            ("a0/prod", InputChange::Modified)
        ]
    );
}

#[test]
fn an_index_of_another_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.index");
    let files = monorepo(&mut Dice(9));
    let index = ScanCache::new();
    let cold = analysis(&files, &index);
    index.save(&path).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|seed| {
            let path = path.clone();
            std::thread::spawn(move || {
                let index = ScanCache::new();
                let _ = analysis(&monorepo(&mut Dice(seed)), &index);
                index.save(&path).unwrap();
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let warm = analysis(&files, &ScanCache::load(&path));
    for stack in &cold.layout().stacks {
        assert_eq!(
            cold.input_digest(stack).unwrap(),
            warm.input_digest(stack).unwrap()
        );
    }
    assert!(warm.compare(&cold).stacks.is_empty());
}

#[test]
fn another_core_affects_every_stack() {
    let files = monorepo(&mut Dice(2));
    let index = ScanCache::new();
    let before = analysis(&files, &index);
    let source = files.source();
    let layout = Layout::read(&source, SettingsOrder::V090).unwrap();
    let after = Analysis::new(source, Arc::new(layout), "0.12.5", &index).unwrap();
    assert_eq!(after.compare(&before).stacks.len(), before.layout().stacks.len());
    assert!(CoreRules::for_version("0.12.5") != CoreRules::for_version(CORE));
}

/// Seeds that once found something, or that make a rare shape (a folder named like a file); kept for good.
#[test]
fn seeds_that_found_something_stay_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut oracle = Oracle::start();
    for seed in [81, 1123, 1591] {
        one_case(seed, Shape::Common, &mut oracle, &folder.path().join("repo"));
    }
}

/// Entries are one package: what one of them imports, all of them may use.
#[test]
fn an_entry_reads_by_the_import_of_another_entry() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repo");
    let mut oracle = Oracle::start();
    let index = ScanCache::new();
    for import in ["import file", "import file as f"] {
        let name = import.rsplit(' ').next().unwrap();
        let mut files = Files::default();
        files.put("kcl.mod", "");
        files.put("apps/shop/project.yaml", "name: shop\n");
        files.put(
            "apps/shop/base/base.k",
            format!("common = {name}.read(\"data.txt\")\n"),
        );
        files.put("apps/shop/base/data.txt", "before");
        files.put("apps/shop/dev/stack.yaml", "name: dev\n");
        files.put(
            "apps/shop/dev/kcl.yaml",
            "kcl_cli_configs:\n  files: [../base/base.k, main.k]\n",
        );
        files.put("apps/shop/dev/main.k", format!("{import}\n\nx = 1\n"));
        let before = side(ORDER, &files, &index, &mut oracle, &root);
        files.put("apps/shop/base/data.txt", "after");
        let after = side(ORDER, &files, &index, &mut oracle, &root);
        assert_ne!(before.specs, after.specs, "the core reads it");
        assert!(after.specs["shop/dev"].is_ok(), "{:?}", after.specs);
        let reached = derived(&before.analysis, &files);
        for analysis in [&after.analysis, &reached] {
            let answer = analysis.compare(&before.analysis);
            let chains: Vec<_> = answer.stacks.iter().flat_map(|stack| &stack.why).collect();
            assert_eq!(chains.len(), 1, "{import}: {answer:?}");
            assert_eq!(chains[0].kind, InputKind::Data);
            assert_eq!(chains[0].path.as_str(), "apps/shop/base/data.txt");
            let stack = &analysis.layout().stacks[0];
            let closure = analysis.closure(stack).unwrap();
            assert!(
                closure
                    .files
                    .iter()
                    .any(|file| file.path.file_name() == "data.txt")
            );
        }
    }
}

/// A file named by a plain text is all that is depended on; what is not so plain is the whole folder.
#[test]
fn a_named_data_file_is_the_only_one() {
    let index = ScanCache::new();
    let named_by = |reads: &str, edited: &str| {
        let mut files = Files::default();
        files.put("kcl.mod", "");
        files.put("base/pkg/reads.k", format!("import file\n\nseen = {reads}\n"));
        files.put("base/pkg/data.txt", "1");
        files.put("base/pkg/other.txt", "1");
        files.put("apps/shop/project.yaml", "name: shop\n");
        files.put("apps/shop/dev/stack.yaml", "name: dev\n");
        files.put("apps/shop/dev/kcl.yaml", "kcl_cli_configs:\n  files: [main.k]\n");
        files.put("apps/shop/dev/main.k", "import base.pkg\n\nx = pkg.seen\n");
        let before = analysis(&files, &index);
        files.put(edited, "2");
        let after = analysis(&files, &index);
        let answer = after.compare(&before);
        assert_eq!(derived(&before, &files).compare(&before), answer);
        !answer.stacks.is_empty()
    };
    let (data, other) = ("base/pkg/data.txt", "base/pkg/other.txt");
    assert!(named_by("file.read(\"data.txt\")", data));
    assert!(!named_by("file.read(\"data.txt\")", other));
    assert!(named_by("file.exists(\"new.txt\")", "base/pkg/new.txt"));
    assert!(named_by("file.exists(\"new\")", "base/pkg/new/file.txt"));
    for broad in [
        "file.read(\"data\" + \".txt\")",
        "file.glob(\"*.txt\")",
        "file.read(\"../pkg/data.txt\")",
    ] {
        assert!(named_by(broad, other), "{broad}");
    }
}
