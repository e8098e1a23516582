//! A pull request whose author writes what GitHub, its runner or a browser could obey: nothing of it leaves its place.

use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};

use crate::support::{ci_stage::Stage, git::Repository, process::Konverge, tiny_monorepo};

/// Commands, mentions, links, elements and a marker of ours, as a value in KCL.
const HOSTILE: &str = "::error::x\\n::add-mask::y\\n##[group]z\\n@octocat #12 https://evil.example <img src=x> </details>\\n<!-- konverge:v1 e30 -->\\n```";

fn write(repository: &Repository) {
    let settings = format!(
        r#"    {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "settings", "namespace": "hostile-web-dev", "annotations": {{"a@octocat": "{HOSTILE}"}}}}, "data": {{"text": "{HOSTILE}"}}}}
"#
    );
    tiny_monorepo::write_resources(repository, "web/dev", "hostile-web-dev", &settings);
    // An error in its own words.
    tiny_monorepo::write_resources(repository, "web/prod", "hostile-web-prod", "");
    let refused = format!("assert False, \"{HOSTILE}\"\n");
    let text = repository.read("appops/web/prod/main.k");
    repository.write("appops/web/prod/main.k", text + &refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_pull_request_holds_is_obeyed() {
    let mut stage = Stage::with("hostile", tiny_monorepo::monorepo(), "").await;
    stage.env = vec![("KONVERGE_LIVE", "never".to_owned())];
    stage.propose("capture", write);
    let ran = stage.pull_request(7, "capture", "opened");
    ran.outcome.check(1);

    // The runner reads both streams, line by line, and the old form of its commands anywhere in a line.
    let lines = ran.outcome.stdout.lines().chain(ran.outcome.stderr.lines());
    let commands: Vec<_> = lines
        .clone()
        .filter(|line| line.trim_start().starts_with("::"))
        .collect();
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(
        commands[0].starts_with("::error file=appops/web/prod/main.k,line="),
        "{commands:?}"
    );
    assert!(
        !lines.clone().any(|line| line.contains("##[")),
        "{}",
        ran.outcome.stderr
    );
    // Nor can an output be set by it.
    let names = ran
        .outputs
        .lines()
        .filter_map(|line| line.split_once("<<konverge_"));
    assert!(
        names.clone().count() >= 9
            && names
                .clone()
                .all(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
    );

    let (_, body) = stage.comments().pop().unwrap();
    assert_eq!(CommentMarker::parse(&body).unwrap().run, 5001);
    assert!(body.contains("evil.example"), "it is shown: {body}");
    for text in [body.as_str(), ran.summary.as_str()] {
        assert_shown_as_code(text);
    }
    let page = std::fs::read_to_string(ran.output("summary-path")).unwrap();
    assert!(!page.contains("<img") && page.contains("&lt;img"), "{page}");
}

/// Every line that holds it stands in a diff or in the quoted error, between fences.
fn assert_shown_as_code(text: &str) {
    let mut fenced = false;
    for line in text.lines() {
        let line = line.trim_start_matches(['>', ' ']);
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside = line.split('`').step_by(2).collect::<String>();
            for word in ["@octocat", "#12", "evil.example", "<img", "konverge:v1 e30"] {
                assert!(!outside.contains(word), "{word}: {line}");
            }
        }
    }
    assert!(!fenced, "{text}");
}

/// Issues tell of values that nobody reviewed, and of what somebody wrote into the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_an_issue_is_obeyed() {
    let mut stage = Stage::small("").await;
    let stopped = stage.straight_to_main(|stage| stage.stack("odd/dev", &[("odd-map", HOSTILE)]));
    stopped.outcome.check(3);
    let applied = stage.approve(&stopped.digest());
    applied.outcome.check(0);
    let by_hand = format!("{} once more", HOSTILE.replace("\\n", "\n"));
    stage.by_hand("odd-map", Some(&by_hand)).await;
    let looked = stage.schedule();
    looked.outcome.check(0);
    for ran in [&stopped, &applied, &looked] {
        assert_shown_as_code(&ran.summary);
        let mut lines = ran.outcome.stdout.lines().chain(ran.outcome.stderr.lines());
        let obeyed = |line: &str| line.contains("##[") || line.trim_start().starts_with("::add-mask");
        assert!(!lines.any(obeyed), "{}", ran.outcome.stderr);
    }
    let issues = stage.github.world(|world| world.issues.clone());
    let kinds: Vec<_> = issues
        .iter()
        .map(|issue| CommentMarker::parse(&issue.body).expect("ours, and on top").kind)
        .collect();
    assert_eq!(kinds, [MarkerKind::Unreviewed, MarkerKind::Drift]);
    for issue in &issues {
        assert_shown_as_code(&issue.body);
        assert!(!issue.title.contains(['@', '#', '<']), "{}", issue.title);
    }
    assert!(issues[1].body.contains("evil.example"), "{}", issues[1].body);
}

#[test]
fn no_command_prints_a_workflow_command_or_what_can_not_be_seen() {
    let monorepo = tiny_monorepo::monorepo();
    let folder = "appops/web/x\n::error::pwned\u{1b}[31m";
    tiny_monorepo::write_stack(&monorepo, "web/dev", "hostile", "info");
    let settings = monorepo.read("appops/web/dev/kcl.yaml");
    monorepo
        .write(&format!("{folder}/stack.yaml"), "name: odd\n")
        .write(&format!("{folder}/kcl.yaml"), settings)
        .write(&format!("{folder}/main.k"), "resources = []\n")
        .write(
            "appops/web/dev/main.k",
            format!("# a\n::error::source\nassert False, \"{HOSTILE}\\u202e\"\n"),
        )
        .commit("Hostile");
    for arguments in [
        &["affected", "--all", "--output", "folders"][..],
        &["affected", "--all"],
        &["build", "--all"],
        &["check", "--all"],
        &["preview", "--all", "--live", "never"],
        &["graph"],
    ] {
        let outcome = Konverge::new(arguments)
            .with_kcl()
            .dir(monorepo.path())
            .env("GITHUB_ACTIONS", "true")
            .run();
        let printed = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!printed.is_empty(), "{arguments:?}");
        for line in printed.lines() {
            let ours = line.starts_with("::error file=") || line.starts_with("::warning file=");
            let commands = line.trim_start().starts_with("::") && !ours || line.contains("##[");
            assert!(!commands, "{arguments:?}: {line}");
            assert!(!line.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {line:?}");
        }
    }
}

#[test]
fn a_value_that_reads_as_one_that_is_not_shown_is_refused() {
    let monorepo = tiny_monorepo::monorepo();
    for (name, mark) in [
        ("unknown", r#"{"$unknown" = True}"#),
        ("secret", r#"{"$secret" = "deadbeefcafe"}"#),
    ] {
        let id = format!("web/{name}");
        let program = format!(
            "resources = [{{\n    apiVersion = \"v1\"\n    kind = \"ConfigMap\"\n    metadata = {{name = \"a\"}}\n    data = {{level = {mark}}}\n}}]\n"
        );
        tiny_monorepo::write_program(&monorepo, &id, &program);
        monorepo.commit(name);
        let built = Konverge::new(["build", &id])
            .with_kcl()
            .dir(monorepo.path())
            .run();
        assert_ne!(built.code, Some(0), "{}", built.stdout);
        for words in ["v1:ConfigMap:a", "attributes.data.level", "hint:"] {
            assert!(built.stderr.contains(words), "{words}: {}", built.stderr);
        }
    }
}

/// What every value of a stack holds: commands of the runner at the start of a line and inside one, marks that turn
/// text around, and tags that nobody sees.
const HIDDEN: &str = "a\\n::error::x\\n  ::add-mask::y ##[group]z \\u202e\\u200b\\u2066 \\U000e0041b\\n";

fn is_harmless(printed: &str) -> Result<(), String> {
    for line in printed.split('\n') {
        let ours = line.starts_with("::error file=") || line.starts_with("::warning file=");
        let commands = line.trim_start().starts_with("::") && !ours || line.contains("##[");
        let hides = line.contains(|c: char| c != '\t' && konverge_base::model::text::is_hidden(c));
        if commands || hides {
            return Err(format!("{line:?}"));
        }
    }
    Ok(())
}

#[test]
fn documents_hide_nothing_and_mean_the_same() {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "web/dev", "hidden", HIDDEN);
    monorepo.commit("Hidden");
    let konverge = |arguments: &[&str]| {
        Konverge::new(arguments)
            .with_kcl()
            .dir(monorepo.path())
            .env("GITHUB_ACTIONS", "true")
            .run()
    };
    let meant = "a\n::error::x\n  ::add-mask::y ##[group]z \u{202e}\u{200b}\u{2066} \u{e0041}b\n";
    for output in ["yaml", "json", "manifests"] {
        let printed = konverge(&["build", "--all", "--output", output]).expect(0).stdout;
        is_harmless(&printed).unwrap_or_else(|line| panic!("{output}: {line}"));
        let documents = konverge_base::yaml::documents(&printed).unwrap();
        let level = |value: &serde_json::Value| value["data"]["level"].as_str().map(str::to_owned);
        let found: Vec<_> = match output {
            "manifests" => documents.iter().filter_map(level).collect(),
            _ => {
                let resources = documents[0]["resources"].as_array().unwrap();
                resources
                    .iter()
                    .filter_map(|resource| level(&resource["attributes"]))
                    .collect()
            }
        };
        assert_eq!(found, [meant], "{output}");
    }
    // As a folder's name, and as what an assertion says.
    let program = format!("import base.app\nassert False, \"{HIDDEN}\"\n");
    tiny_monorepo::write_program(&monorepo, "web/dev", &program);
    let odd = "appops/web/o\u{202e}d##[d";
    for file in ["stack.yaml", "kcl.yaml", "main.k"] {
        let text = monorepo.read(&format!("appops/web/dev/{file}"));
        monorepo.write(&format!("{odd}/{file}"), text.replace("name: dev", "name: odd"));
    }
    monorepo.commit("Hidden in names");
    for arguments in [
        &["graph"][..],
        &["graph", "--output", "dot"],
        &["graph", "--output", "json"],
        &["graph", "--output", "mermaid"],
        &["build", "--all"],
        &["build", "--all", "--output", "json"],
        &["check", "--all"],
        &["check", "--all", "--output", "json"],
        &["check", "--all", "--output", "sarif"],
        &["check", "--all", "--output", "annotations"],
        &["preview", "--all", "--live", "never", "--output", "json"],
        &["affected", "--all", "--output", "json"],
    ] {
        let outcome = konverge(arguments);
        let printed = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(printed.len() > 20, "{arguments:?}: {printed}");
        is_harmless(&printed).unwrap_or_else(|line| panic!("{arguments:?}: {line}"));
    }
}

#[test]
fn an_identity_with_invisible_characters_is_refused() {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "web/dev", "web", "info");
    for (id, name) in [
        ("web/a", "pr\u{200b}od"),
        ("web/b", "\u{202e}dorp"),
        ("web/c", "prod\u{3164}"),
    ] {
        tiny_monorepo::write_stack(&monorepo, id, "web", "info");
        monorepo.write(&format!("appops/{id}/stack.yaml"), format!("name: {name}\n"));
    }
    monorepo.commit("Names");
    let outcome = Konverge::new(["check", "--all"])
        .with_kcl()
        .dir(monorepo.path())
        .run()
        .expect(1);
    let refused = outcome.stdout.matches("invisible characters").count();
    assert_eq!(refused, 3, "{}{}", outcome.stdout, outcome.stderr);
    is_harmless(&outcome.stdout).unwrap();
}

#[test]
fn a_huge_message_is_cut_in_the_log() {
    let monorepo = tiny_monorepo::monorepo();
    monorepo.commit("A module");
    for (id, text) in [
        ("web/long", "\"x\" * 50000000"),
        ("web/lines", "\"y\\n\" * 25000000"),
    ] {
        tiny_monorepo::write_program(&monorepo, id, &format!("assert False, {text}\n"));
    }
    tiny_monorepo::write_program(
        &monorepo,
        "web/says",
        "print(\"z\\n\" * 1000000)\nresources = []\n",
    );
    monorepo.git(["add", "--all"]);
    for arguments in [
        &["build", "--all"][..],
        &["check", "--all"],
        &["preview", "--all", "--live", "never"],
    ] {
        let outcome = Konverge::new(arguments)
            .with_kcl()
            .dir(monorepo.path())
            .run()
            .expect(1);
        let told = outcome.stdout.len() + outcome.stderr.len();
        assert!(told < 128 << 10, "{arguments:?}: {told} bytes");
        assert!(
            format!("{}{}", outcome.stdout, outcome.stderr).contains("more "),
            "{arguments:?}: {}",
            outcome.stderr
        );
    }
}
