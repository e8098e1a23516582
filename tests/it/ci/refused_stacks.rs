//! Stacks that KCL refuses: the comment has the first causes once, and the next job compiles nothing.

use konverge_state::Sealer;

use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
    tiny_monorepo,
};

/// A model that is refused at 31 places for two reasons, and three stacks that have it.
fn refused(monorepo: &Repository) {
    let members: String = (0..30).map(|n| format!("    m{n}?: bool = false\n")).collect();
    let model = format!("schema Model:\n{members}\nsum = lambda a: int, b: int {{ a + b }}\ntwo = sum(1)\n");
    monorepo.write("base/app.k", model);
    for id in ["a/dev", "b/dev", "c/dev"] {
        tiny_monorepo::write_program(monorepo, id, "import base.app\n\ntwo = app.two\n");
    }
}

/// What the page of a run says about its Specs.
fn compiled(ran: &Ran) -> String {
    let page = std::fs::read_to_string(ran.output("summary-path")).unwrap();
    let facts = page.split("</p>").find(|text| text.ends_with("from the cache"));
    let counts = facts.and_then(|facts| facts.rsplit(" · ").next());
    counts.expect("the facts of the run").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_causes_are_told_once_and_nothing_is_compiled_again() {
    let mut stage = Stage::small("").await;
    let identity = Sealer::generate().identity().unwrap();
    stage.env = vec![("KONVERGE_AGE_IDENTITY", identity)];
    stage.propose("refused", refused);
    let first = stage.pull_request(7, "refused", "opened");
    first.outcome.check(1);
    assert_eq!(compiled(&first), "Specs: 3 compiled, 0 from the cache");
    let (_, comment) = &stage.comments()[0];
    for once in [
        "name 'false' is not defined (and in 29 more places)",
        "expected 2 positional arguments, found 1",
        "`a/dev`, `b/dev`, `c/dev` could not be planned",
    ] {
        assert_eq!(comment.matches(once).count(), 1, "{once}: {comment}");
    }
    // One annotation in the log of the job, which names the stacks.
    let log = format!("{}{}", first.outcome.stdout, first.outcome.stderr);
    let annotations: Vec<_> = log.lines().filter(|line| line.starts_with("::error ")).collect();
    assert_eq!(annotations.len(), 1, "{log}");
    assert!(
        annotations[0].contains("in a/dev, b/dev, c/dev"),
        "{}",
        annotations[0]
    );

    // Another machine: its own folder is empty, the store is not.
    let again = stage.pull_request(7, "refused", "synchronize");
    again.outcome.check(1);
    assert_eq!(compiled(&again), "Specs: 0 compiled, 3 from the cache");

    // A fork's refusals stay out of the store.
    let before = entries(&stage);
    stage.propose("evil", |monorepo| {
        refused(monorepo);
        monorepo.replace("base/app.k", "sum(1)", "sum(2)");
    });
    let (payload, trial) = stage.opened(8, "evil", "opened", "evil/konfig");
    let fork = stage.preview(8, &payload, &trial);
    fork.outcome.check(1);
    assert_eq!(compiled(&fork), "Specs: 3 compiled, 0 from the cache");
    assert_eq!(entries(&stage), before);
    assert!(!fork.folder.join("caches/konverge/compile").exists());
}

/// The entries of the shared cache.
fn entries(stage: &Stage) -> usize {
    let folder = stage.scratch.path().join("store/cache");
    std::fs::read_dir(&folder).unwrap().count()
}
