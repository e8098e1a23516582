//! Every example of every guide is run: by the test that types its page whole, or here in the example monorepo with a
//! real store and a real API server. What needs GitHub, a cloud or a registry is named with the reason, so a new
//! example that nothing runs makes this test fail.

use std::{fs, path::Path};

use super::start_guides::Shell;
use crate::{
    meta::docs::{blocks, root},
    support::{cluster::Cluster, git::Repository, s3::S3},
};

/// The pages that another test types whole, with the test.
const TYPED_WHOLE: &[(&str, &str)] = &[
    ("tutorial.md", "the_tutorial_goes_from_a_branch_to_drift_and_back"),
    (
        "guides/add-an-application.md",
        "an_application_is_added_in_ten_lines",
    ),
    (
        "guides/adopt.md",
        "the_guides_for_eks_and_for_adopting_are_typed_as_they_stand",
    ),
    (
        "guides/start-eks.md",
        "the_guides_for_eks_and_for_adopting_are_typed_as_they_stand",
    ),
    (
        "guides/start-kind.md",
        "the_guide_for_kind_goes_from_nothing_to_the_first_apply",
    ),
    (
        "guides/on-call.md",
        "the_guides_for_the_night_are_typed_as_they_stand",
    ),
    (
        "guides/roll-back.md",
        "the_guides_for_the_night_are_typed_as_they_stand",
    ),
    (
        "guides/kusion-apps.md",
        "the_guide_is_typed_whole_and_nothing_is_made_again",
    ),
    ("guides/outputs.md", "the_guide_of_outputs_is_typed_as_it_stands"),
    (
        "guides/migrate.md",
        "an_old_repository_is_taken_over_without_making_anything_again",
    ),
];

/// How an example ends that does not end with 0.
enum Ending {
    /// With this code, and it says this.
    Says(i32, &'static str),
    /// With 0, typed at a terminal by one who answers `yes`.
    Asks,
    /// It is not typed here, for this reason.
    NotTyped(&'static str),
}

use Ending::{Asks, NotTyped, Says};

const DOWNLOADS: Ending = NotTyped("it downloads; its own tests have an index");
const REGISTRY: Ending = NotTyped("it asks a registry; its own tests have one");
const RUNS_ON: Ending = NotTyped("it runs until somebody ends it; its own tests do");
const HELM: Ending = NotTyped("it installs with Helm, as the tests of the exported charts do");
const GITOPS: Ending = NotTyped("Argo CD or Flux stands there");
const GITHUB: Ending = NotTyped("it is a tool of GitHub's");

/// The examples that do not simply end with 0: the page (empty for any), how the example begins, and its end.
const OTHERS: &[(&str, &str, Ending)] = &[
    ("", "konverge kcl install", DOWNLOADS),
    ("", "konverge kcl list", DOWNLOADS),
    ("", "konverge models record", DOWNLOADS),
    (
        "",
        "konverge demo",
        NotTyped("its own tests compare what it prints"),
    ),
    ("", "konverge watch", RUNS_ON),
    ("", "konverge serve", RUNS_ON),
    ("", "gh ", GITHUB),
    ("", "helm ", HELM),
    ("", "kubectl apply -f delivery", GITOPS),
    (
        "",
        "konverge export argocd storefront/dev --rev HEAD --to oci:",
        REGISTRY,
    ),
    (
        "",
        "konverge export flux storefront/dev --to delivery --source oci:",
        REGISTRY,
    ),
    (
        "guides/code-changes.md",
        "konverge set storefront/prod --keep",
        Says(64, "GITHUB_TOKEN"),
    ),
    (
        "guides/live-tests.md",
        "konverge test",
        Says(1, "allows live tests"),
    ),
    (
        "guides/models.md",
        "konverge models import crds/argocd",
        Says(64, "there is no YAML or JSON file at `crds/argocd`"),
    ),
    (
        "guides/rollouts.md",
        "konverge rollout status",
        Says(64, "there is no rollout web"),
    ),
    (
        "guides/rollouts.md",
        "konverge rollout pause",
        Says(64, "there is no rollout web"),
    ),
    (
        "guides/rollouts.md",
        "konverge rollout resume",
        Says(64, "there is no rollout web"),
    ),
    (
        "guides/rollouts.md",
        "konverge rollout abort",
        Says(64, "there is no rollout web"),
    ),
    (
        "guides/sres.md",
        "konverge state unlock",
        Says(1, "nobody holds the lease"),
    ),
    ("guides/sres.md", "konverge apply storefront/dev --recorded", Asks),
    ("guides/sres.md", "konverge apply storefront/dev", Asks),
    (
        "guides/watch.md",
        "konverge status --exit-code",
        Says(2, "storefront/dev"),
    ),
    (
        "guides/encrypt-state.md",
        "konverge state rekey",
        Says(1, "`state.encrypt_to` names no recipient"),
    ),
    // The example has Secrets and resources of Terraform; its other stacks are exported.
    (
        "guides/export.md",
        "konverge export argocd --all",
        Says(1, "`orders/dev` cannot be exported for argocd"),
    ),
    (
        "guides/export.md",
        "konverge export flux --all",
        Says(1, "`orders/dev` cannot be exported for flux"),
    ),
];

/// What stands in a guide for something of the reader's.
const PLACEHOLDERS: &[(&str, &str)] = &[
    (" ID…", " v1:ConfigMap:storefront-dev:storefront-alerts"),
    ("--serial 11", "--serial 1 >good.json"),
];

/// What undoes an example, so that the next one finds the stack as its page has it.
const UNDONE: &[(&str, &str)] = &[
    (
        "konverge state move storefront/dev shop/dev",
        "konverge state move shop/dev storefront/dev && konverge apply storefront/dev --yes",
    ),
    (
        "konverge state forget storefront/dev",
        "konverge apply storefront/dev --yes",
    ),
];

/// The shell blocks of a page with a command of ours, as what is typed at once: a text that is handed over (`<<`) and a
/// continued line are one.
fn typed_of(text: &str) -> Vec<String> {
    let shell = blocks(text, "sh").into_iter().chain(blocks(text, "console"));
    let ours = shell.filter(|block| block.contains("konverge "));
    let mut typed = Vec::new();
    for block in ours {
        let mut lines = block.lines();
        while let Some(line) = lines.next() {
            let mut all = line.to_owned();
            if let Some((_, end)) = line.split_once("<<'") {
                let end = end.trim_end_matches('\'');
                for line in lines.by_ref() {
                    all += &format!("\n{line}");
                    if line == end {
                        break;
                    }
                }
            }
            while all.ends_with('\\') {
                let next = lines.next().unwrap_or_default();
                all = format!("{}{}", all.trim_end_matches('\\'), next.trim_start());
            }
            if !all.trim().is_empty() {
                typed.push(all);
            }
        }
    }
    typed
}

/// The pages with examples, by their names below `docs`.
fn pages() -> Vec<(String, String)> {
    let docs = root().join("docs");
    let mut names = vec![
        "../README.md".to_owned(),
        "quick-start.md".to_owned(),
        "tutorial.md".to_owned(),
    ];
    let guides = fs::read_dir(docs.join("guides")).unwrap().flatten();
    let mut guides: Vec<_> = guides
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("guides/{name}"))
        .collect();
    guides.sort();
    names.extend(guides);
    let read = |name: String| {
        let text = fs::read_to_string(docs.join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The source of all tests.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let texts = entries.map(|entry| {
        let is_folder = entry.file_type().unwrap().is_dir();
        if is_folder {
            sources(&entry.path())
        } else {
            fs::read_to_string(entry.path()).unwrap_or_default()
        }
    });
    texts.collect()
}

fn is_typed_whole(page: &str) -> bool {
    TYPED_WHOLE.iter().any(|(whole, _)| *whole == page)
}

/// The end of an example that does not simply end with 0.
fn ending_of(page: &str, example: &str) -> Option<&'static Ending> {
    let is_meant =
        |(of, begin, _): &&(&str, &str, Ending)| (of.is_empty() || *of == page) && example.starts_with(begin);
    OTHERS.iter().find(is_meant).map(|(_, _, ending)| ending)
}

#[test]
fn every_page_with_examples_is_typed_whole_or_here() {
    let pages = pages();
    let sources = sources(&root().join("tests/it"));
    for (page, test) in TYPED_WHOLE {
        assert!(pages.iter().any(|(name, _)| name == page), "{page} is gone");
        assert!(sources.contains(&format!("fn {test}(")), "{page}: no test {test}");
        let file = page.rsplit('/').next().unwrap();
        assert!(
            sources.contains(&format!("{file}\"")),
            "{page}: {test} does not read it"
        );
    }
    let here = pages.iter().filter(|(page, _)| !is_typed_whole(page));
    let typed: Vec<_> = here
        .flat_map(|(page, text)| typed_of(text).into_iter().map(move |example| (page, example)))
        .collect();
    for (of, begin, _) in OTHERS {
        let is_used = typed
            .iter()
            .any(|(page, example)| (of.is_empty() || of == page) && example.starts_with(begin));
        assert!(is_used, "no example of {of} begins so: {begin}");
    }
}

/// Types the examples of the pages that are meant, and of no page that another test types.
fn type_examples(bucket: &str, is_meant: impl Fn(&str) -> bool) {
    // The example has Namespaces of its own, so the cluster is its own.
    let cluster = &Cluster::start();
    cluster.start_controllers();
    let bucket = S3::shared().bucket(bucket);
    let monorepo = &Repository::konfig_example();
    // Production's stacks are in another cluster by its name: two of them have objects of one name.
    let config = monorepo.read("konverge.yaml").replace(
        "  # - match: appops/*/prod\n  #   cluster: prod\n",
        "  - match: appops/*/prod\n    cluster: prod\n  - match: appops/*/{dev,staging}\n    cluster: test\n",
    );
    assert!(config.contains("cluster: test"), "{config}");
    monorepo.write(
        "konverge.yaml",
        format!(
            "{config}\nstate:\n  id: guides\n  url: s3://{bucket}/konverge\n  options: {{endpoint: '{}', region: us-east-1, path_style: 'true', allow_http: 'true'}}\nclusters: {{test: {{}}, prod: {{context: test}}}}\n",
            S3::shared().endpoint()
        ),
    );
    monorepo.commit("A store and a cluster");
    monorepo.git(["branch", "deploy"]);
    let beside = tempfile::tempdir().unwrap();
    let shell = Shell { monorepo, cluster };
    for image in ["2.4.8", "2.4.9"] {
        let edit = format!(
            "konverge set storefront/dev --image ghcr.io/example/storefront=ghcr.io/example/storefront:{image} --update"
        );
        shell.type_in(&edit).expect(0);
        monorepo.commit(image);
        shell.type_in("konverge apply storefront/dev --yes").expect(0);
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, text) in pages() {
        if is_typed_whole(&page) || !is_meant(&page) {
            continue;
        }
        for example in typed_of(&text) {
            let line = PLACEHOLDERS
                .iter()
                .fold(example.clone(), |line, (from, to)| line.replace(from, to))
                .replace("../deploy", &beside.path().join("deploy").display().to_string());
            let (code, says, typed) = match ending_of(&page, &example) {
                Some(NotTyped(why)) => {
                    println!("not typed: {page}: `{example}`: {why}");
                    continue;
                }
                Some(Says(code, says)) => (*code, *says, shell.type_in(&line)),
                Some(Asks) => (0, "", shell.type_at_a_terminal(&line)),
                None => (0, "", shell.type_in(&line)),
            };
            count += 1;
            let told = format!("{}{}", typed.stdout, typed.stderr);
            if typed.code != Some(code) || !told.contains(says) {
                wrong.push(format!("{page}\n$ {example}\n[{:?}] {told}", typed.code));
            }
            for (_, undo) in UNDONE.iter().filter(|(begin, _)| example.starts_with(begin)) {
                shell.type_in(undo).expect(0);
            }
        }
        // What a page writes is there for its next line, and gone for the next page.
        monorepo.git(["checkout", "--quiet", "."]);
        monorepo.git(["clean", "--quiet", "-fd"]);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 20, "{count}");
}

/// The guides whose names are in the first half of the alphabet, and the pages beside them.
fn is_early(page: &str) -> bool {
    page.strip_prefix("guides/").is_none_or(|name| name < "export")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_first_pages_run() {
    type_examples("guide-examples-early", is_early);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_other_guides_run() {
    type_examples("guide-examples-late", |page| !is_early(page));
}
