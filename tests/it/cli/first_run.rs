//! What somebody is told who does not know Konverge yet: at the first try, at a slip, after Ctrl-C.

use std::time::Duration;

use nix::{
    sys::signal::Signal::SIGINT,
    unistd::{Pid, getpgid},
};

use serde_json::json;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    kcl,
    process::{Konverge, Outcome},
    service::eventually,
    shop_monorepo::{Shop, resource},
    tiny_monorepo,
};

fn konverge(monorepo: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .with_kcl()
        .dir(monorepo.path())
        .env("XDG_STATE_HOME", monorepo.path().join(".git/test-state"))
        .run()
}

/// Everything printed, of a run that ended with this code.
fn said(monorepo: &Repository, arguments: &[&str], code: i32) -> String {
    let outcome = konverge(monorepo, arguments).expect(code);
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn children(pid: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parent = |number: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.is_some_and(|line| line.trim() == pid.to_string())
    };
    numbers.filter(parent).map(Pid::from_raw).collect()
}

/// Who applied with `--kubeconfig` first and names the cluster later is told how the stack goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_gets_a_name_later_is_told_which() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("first-name").await;
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "first/name", &namespace, "one");
    monorepo.commit("A stack");
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let apply = ["apply", "first/name", "--yes", "--kubeconfig", &kubeconfig];
    konverge(&monorepo, &apply).expect(0);
    let status = said(&monorepo, &["status"], 0);
    assert!(status.contains("without a check of the cluster"), "{status}");

    let named = |name: &str| {
        let config =
            format!("version: 1\nclusters: {{{name}: {{context: test}}}}\nkcl: {{version: 0.13.2}}\n");
        monorepo.write("konverge.yaml", config).commit(name);
        Konverge::new(["drift", "first/name"])
            .with_kcl()
            .dir(monorepo.path())
            .env("KUBECONFIG", &kubeconfig)
            .env("XDG_STATE_HOME", monorepo.path().join(".git/test-state"))
            .run()
    };
    let told = named("local").expect(1).stdout;
    assert!(
        told.contains("would move from cluster `default` to `local`")
            && told.contains("call it `default` under `clusters`"),
        "{told}"
    );
    named("default").expect(0);
}

#[tokio::test]
async fn an_interruption_is_said_once_and_blamed_on_no_stack() {
    let monorepo = Repository::konfig_example();
    for stack in ["dev", "prod"] {
        let endless = "a = [x * y for x in range(100000) for y in range(100000)]\n";
        monorepo.write(&format!("appops/storefront/{stack}/main.k"), endless);
    }
    let running = Konverge::new(["build", "storefront/dev", "storefront/prod"])
        .with_kcl()
        .dir(monorepo.path())
        .start();
    // A terminal's Ctrl-C goes to a whole group: the worker is in one of its own.
    let ours = getpgid(Some(Pid::from_raw(running.pid().cast_signed()))).unwrap();
    let worker = eventually(
        "a worker runs in a group of its own",
        Duration::from_secs(60),
        || async {
            let worker = children(running.pid()).first().copied()?;
            getpgid(Some(worker))
                .is_ok_and(|group| group != ours)
                .then_some(worker)
        },
    )
    .await;
    running.signal(SIGINT);
    let outcome = running.wait().expect(130);
    assert_eq!(outcome.stderr.matches("error:").count(), 1, "{}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("error: interrupted\n"),
        "{}",
        outcome.stderr
    );
    eventually("the worker ends too", Duration::from_secs(60), || async {
        getpgid(Some(worker)).is_err().then_some(())
    })
    .await;
}

#[test]
fn a_repository_without_a_commit_and_one_without_a_change() {
    let empty = Repository::init();
    empty.write("kcl.mod", "[package]\nname = \"a\"\n");
    for arguments in [&["affected"][..], &["preview"]] {
        let told = said(&empty, arguments, 1);
        assert!(
            told.contains("nothing is committed in this repository yet") && told.contains("git commit"),
            "{told}"
        );
    }
    let monorepo = Repository::konfig_example();
    for arguments in [&["preview", "--live", "never"][..], &["check"], &["build"]] {
        let told = said(&monorepo, arguments, 0);
        assert!(
            told.contains("is part of main: only uncommitted changes are compared"),
            "{told}"
        );
        assert!(told.contains("--base HEAD~1"), "{told}");
    }
}

#[test]
fn what_init_writes_applies_what_is_merged_into_the_default_branch() {
    for branch in ["master", "trunk"] {
        let repository = Repository::init();
        repository.git(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]);
        said(&repository, &["init"], 0);
        let text = std::fs::read_to_string(repository.path().join(".github/workflows/konverge.yml")).unwrap();
        assert!(text.contains(&format!("    branches: [{branch}]\n")), "{text}");
    }
}

/// The job's folder is the monorepo's, not that of its only project.
#[test]
fn init_finds_the_monorepo_above_its_only_project() {
    for (module, folder) in [
        ("kcl.mod", None),
        ("apps/shop/kcl.mod", None),
        ("apps/shop/dev/kcl.mod", None),
        ("platform/kcl.mod", Some("platform")),
    ] {
        let repository = Repository::init();
        let project = match folder {
            Some(folder) => format!("{folder}/apps/shop"),
            None => "apps/shop".to_owned(),
        };
        repository
            .write(module, "[package]\nname = \"shop\"\n")
            .write(&format!("{project}/project.yaml"), "name: shop\n")
            .write(&format!("{project}/dev/stack.yaml"), "name: dev\n")
            .write(&format!("{project}/dev/main.k"), "resources = []\n")
            .commit("A stack");
        said(&repository, &["init"], 0);
        let text = std::fs::read_to_string(repository.path().join(".github/workflows/konverge.yml")).unwrap();
        let written = folder.map(|folder| format!("working-directory: {folder}\n"));
        match written {
            Some(written) => assert!(text.contains(&written), "{module}: {text}"),
            None => assert!(!text.contains("working-directory"), "{module}: {text}"),
        }
    }
}

#[test]
fn a_headline_counts_what_was_looked_at() {
    let monorepo = Repository::konfig_example();
    let headline = |arguments: &[&str], code: i32| {
        let told = konverge(&monorepo, arguments).expect(code).stdout;
        told.lines()
            .find(|line| line.starts_with("### "))
            .unwrap()
            .to_owned()
    };
    let preview = ["preview", "--live", "never", "-o"];
    let unchanged = [&preview[..], &["markdown", "storefront/dev"]].concat();
    assert_eq!(headline(&unchanged, 0), "### Konverge preview: no changes");
    monorepo.replace("appops/storefront/dev/main.k", "rc.1", "rc.2");
    let changed = headline(&[&preview[..], &["markdown"]].concat(), 0);
    assert!(changed.ends_with(" to update"), "{changed}");
}

#[test]
fn a_file_that_is_not_there_or_not_read_is_named_with_what_to_do() {
    let monorepo = Repository::konfig_example();
    let spec = said(&monorepo, &["build", "--spec", "nowhere.yaml"], 64);
    assert!(
        spec.contains("the Spec cannot be read") && spec.contains("hint:"),
        "{spec}"
    );

    let check = |text: &[u8]| {
        monorepo.write("konverge.yaml", text);
        said(&monorepo, &["config", "check"], 1)
    };
    let foreign = check(b"version: 1 # caf\xe9\n");
    assert!(
        foreign.contains("save the file as UTF-8") && !foreign.contains("init"),
        "{foreign}"
    );
    let twice = check(b"version: 1\nversion: 1\n");
    assert!(
        twice.contains("duplicate") && !twice.contains("Policy"),
        "{twice}"
    );
    // What is printed is what is in force, and can be read again.
    monorepo.write("konverge.yaml", "version: 1\nclusters: {dev: {context: dev}}\n");
    let printed = konverge(&monorepo, &["config", "check"]).expect(0).stdout;
    assert!(
        printed.contains("context: dev") && printed.contains("term: 1m"),
        "{printed}"
    );
    assert!(
        !["null", "[]", "{}"].iter().any(|unset| printed.contains(unset)),
        "{printed}"
    );
    monorepo.write("konverge.yaml", &printed);
    assert_eq!(
        konverge(&monorepo, &["config", "check"]).expect(0).stdout,
        printed
    );

    let scheme = check(b"version: 1\nstate: {url: 'ftp://x/y'}\n");
    assert!(
        scheme.contains("unknown scheme `ftp`") && scheme.contains("postgres"),
        "{scheme}"
    );

    monorepo.write("konverge.yaml", "version: [\n");
    let doctor = said(&monorepo, &["doctor"], 1);
    assert!(
        doctor.contains("not checked") && !doctor.contains("none is configured"),
        "{doctor}"
    );
}

#[test]
fn a_core_that_can_not_be_had_is_told_with_other_ways() {
    let refused = |arguments: &[&str]| {
        let outcome = Konverge::new(["kcl", "install"].iter().chain(arguments)).run();
        outcome.expect(1).stderr
    };
    let unreachable = refused(&["--index", "http://127.0.0.1:9/simple"]);
    for told in ["Connection refused", "HTTPS_PROXY", "--index URL", "KONVERGE_KCL"] {
        assert!(unreachable.contains(told), "{told}: {unreachable}");
    }
    let none = refused(&["--interpreter", "/bin/false"]);
    assert!(
        none.contains("no Python interpreter") && none.contains("apt-get install python3"),
        "{none}"
    );
}

#[test]
fn a_store_that_is_not_there_is_told_by_its_cause() {
    let monorepo = Repository::konfig_example();
    let preview = |url: &str| {
        let config = format!("version: 1\nstate: {{id: x, url: '{url}'}}\n");
        monorepo.write("konverge.yaml", config);
        konverge(&monorepo, &["preview", "storefront/dev"]).expect(1)
    };
    for url in [
        "postgres://me@127.0.0.1:9/konverge",
        "mysql://me@127.0.0.1:9/konverge",
    ] {
        let outcome = preview(url);
        assert!(
            outcome.stderr.contains("Connection refused"),
            "{}",
            outcome.stderr
        );
        assert!(outcome.elapsed < Duration::from_secs(30), "{:?}", outcome.elapsed);
    }
    let azure = preview("az://container/prefix").stderr;
    assert!(azure.contains("set AZURE_STORAGE_ACCOUNT_NAME"), "{azure}");
}

/// The store is not asked, so nobody needs a credential: its key marks secrets where it is.
#[test]
fn a_preview_that_compares_specs_needs_no_store() {
    let monorepo = Repository::konfig_example();
    monorepo.replace("appops/storefront/dev/main.k", "rc.1", "rc.2");
    let preview = |more: &[&str]| {
        let words = [&["preview", "--live", "never"], more].concat();
        konverge(&monorepo, &words).expect(0)
    };
    let without = preview(&["-o", "json"]);
    let config =
        monorepo.read("konverge.yaml") + "state: {id: x, url: 's3://nobody-may-read-this/konverge'}\n";
    monorepo.write("konverge.yaml", config);
    let json = preview(&["-o", "json"]);
    assert!(json.stdout.contains("2.4.0-rc.2"), "{}", json.stdout);
    assert!(!without.stderr.contains("store"), "{}", without.stderr);
    for told in [
        json,
        preview(&[]),
        preview(&["-o", "markdown"]),
        preview(&["storefront/dev"]),
    ] {
        let notes: Vec<_> = told
            .stderr
            .lines()
            .filter(|line| line.contains("note: "))
            .collect();
        assert!(
            matches!(notes.as_slice(), [note] if note.contains("by a key of this machine")),
            "{notes:?}"
        );
    }
    // What only the store knows is not looked for there.
    let gone = konverge(&monorepo, &["preview", "--live", "never", "shop/gone"]).expect(64);
    assert!(!gone.stderr.contains("S3"), "{}", gone.stderr);
    // Who needs the states still asks for them.
    konverge(&monorepo, &["status", "--live", "never"]).expect(1);
}

#[test]
fn a_context_that_a_kubeconfig_does_not_have_is_told_with_those_that_it_has() {
    let monorepo = Repository::konfig_example();
    let config = monorepo.read("konverge.yaml") + "clusters: {prod: {context: prod}}\n";
    monorepo.write("konverge.yaml", config);
    let kubeconfig = monorepo.path().join(".git/kubeconfig");
    let refused = |run: Konverge| run.dir(monorepo.path()).with_kcl().run().expect(1).stdout;
    let preview = || Konverge::new(["preview", "storefront/dev"]);
    std::fs::write(&kubeconfig, "current-context: kind-two\ncontexts: [{name: kind-one, context: {cluster: c}}, {name: kind-two, context: {cluster: c}}]\n").unwrap();
    let told = refused(preview().env("KUBECONFIG", &kubeconfig));
    let place = format!(
        "the kubeconfig `{}`, which KUBECONFIG names,",
        kubeconfig.display()
    );
    for part in [
        place.as_str(),
        "it has no context `prod`; it has `kind-one`, `kind-two`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Somebody may have put the text of a kubeconfig there.
    let secret = refused(preview().env("KUBECONFIG", "/no/hunter2"));
    assert!(
        !secret.contains("hunter2") && secret.contains("KUBECONFIG"),
        "{secret}"
    );
    let none = refused(preview());
    assert!(
        none.contains("/.kube/config`") && none.contains("No such file"),
        "{none}"
    );
}

#[test]
fn the_version_is_printed_by_a_command_too() {
    let version = |words: &[&str]| Konverge::new(words).run().expect(0).stdout;
    assert_eq!(version(&["version"]), version(&["--version"]));
}

#[test]
fn help_and_usage_are_true() {
    let monorepo = Repository::konfig_example();
    let markdown = said(&monorepo, &["drift", "-o", "markdown"], 64);
    assert!(markdown.contains("[possible values: text, json]"), "{markdown}");
    for command in ["drift", "status"] {
        let help = said(&monorepo, &[command, "--help"], 0);
        assert!(help.contains("default: every one"), "{help}");
    }
    for command in ["apply", "destroy", "drift"] {
        let help = said(&monorepo, &[command, "--help"], 0);
        assert!(!help.contains("Spec is compared with Spec"), "{help}");
    }
    let rollback = said(
        &monorepo,
        &["state", "rollback", "a/b", "--to", "1", "--live", "never"],
        64,
    );
    assert!(rollback.contains("unexpected argument '--live'"), "{rollback}");
    for arguments in [["-o", "json"], ["--output=json", "--all"]] {
        let outcome = konverge(&monorepo, &[&["preview", "--bogus"], &arguments[..]].concat()).expect(64);
        let error = &outcome.json()["error"];
        assert_eq!(error["kind"], "usage", "{error}");
        assert!(error["message"].as_str().unwrap().contains("--bogus"), "{error}");
    }
}

/// Answers the questions of the program given by its arguments, at a terminal, and prints all that stood there. The
/// first argument is the answer to `Type `yes`: `, or a list in JSON of the ends of questions with their answers: a
/// Ctrl-C has no line end. A person takes half a second, in which a spinner would draw.
pub(super) const AT_A_TERMINAL: &str = r#"
import json, os, pty, sys, time
told = sys.argv[1]
answers = json.loads(told) if told.startswith("[") else [["Type `yes`: ", told]]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen, answered = b"", 0
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        part = b""
    if not part:
        break
    seen += part
    if answers and answers[0][0].encode() in seen[answered:]:
        answered = len(seen)
        time.sleep(0.5)
        answer = answers.pop(0)[1]
        os.write(terminal, answer.encode() + (b"" if answer == "\x03" else b"\n"))
sys.stdout.write(seen.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// A run of `konverge` at a terminal, where these questions are answered.
fn at_a_terminal(answers: &[(&str, &str)], arguments: &[&str]) -> Konverge {
    let program = env!("CARGO_BIN_EXE_konverge");
    let answers = json!(answers).to_string();
    let script = ["-c", AT_A_TERMINAL, &answers, program];
    Konverge::of(&kcl::interpreter(), script.iter().chain(arguments))
        .with_kcl()
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
}

const STORE: &str = "Where is the state kept? (such as `s3://my-bucket/konverge`; empty: decide later) ";
const CLUSTER: &str = "empty: decide later) ";
const CLOUD: &str = "At which cloud do the jobs log in? (aws, google, azure; empty: none) ";

#[test]
fn init_asks_at_a_terminal_and_nothing_is_drawn_over_the_answers() {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "shop/dev", "shop", "info");
    monorepo.commit("A stack");
    let eks = "arn:aws:eks:eu-central-1:111122223333:cluster/prod";
    let answers = [
        (STORE, "my bucket"),
        (STORE, "s3://my-bucket/konverge"),
        (CLUSTER, eks),
        (CLOUD, "yes"),
        (CLOUD, "aws"),
    ];
    let told = at_a_terminal(&answers, &["init", "--no-install"])
        .dir(monorepo.path())
        .run()
        .expect(0)
        .stdout;
    for (question, answer) in answers {
        assert!(told.contains(&format!("{question}{answer}\r\n")), "{told:?}");
    }
    assert!(
        told.contains("`my bucket` is not the address of a store"),
        "{told}"
    );
    assert!(told.contains("`yes` is none of them"), "{told}");
    assert!(
        !told.contains("`clusters` is set") && told.contains("compares Spec with Spec"),
        "{told}"
    );
    let config = konverge_config::Config::parse(&monorepo.read("konverge.yaml")).unwrap();
    assert_eq!(config.state.url.as_deref(), Some("s3://my-bucket/konverge"));
    let (name, cluster) = config.clusters.first_key_value().unwrap();
    assert_eq!((name.as_str(), cluster.context.as_deref()), ("prod", Some(eks)));
}

#[test]
fn ctrl_c_at_a_question_ends_the_command() {
    let monorepo = tiny_monorepo::monorepo();
    let told = at_a_terminal(&[(STORE, "\u{3}")], &["init"])
        .dir(monorepo.path())
        .run();
    assert!(told.expect(130).stdout.contains("interrupted at a question"));
    assert!(!monorepo.path().join("konverge.yaml").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_yes_is_told_so_and_without_anybody_the_plan_is_shown() {
    let cluster = Cluster::shared();
    let (ns, kubeconfig) = (cluster.namespace("answered").await, cluster.kubeconfig());
    let config = "version: 1\nclusters: {test: {}}\n";
    let shop = Shop::new(config, &[("KUBECONFIG", &kubeconfig)]);
    let map = |name: &str, namespace: &str| {
        resource(
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}),
        )
    };
    shop.wants("dev", &[map("map", &ns)]);
    let answered = |answer: &str| {
        let program = env!("CARGO_BIN_EXE_konverge");
        let arguments = ["-c", AT_A_TERMINAL, answer, program, "apply", "shop/dev"];
        Konverge::of(&kcl::interpreter(), arguments)
            .with_kcl()
            .env("TERM", "xterm")
            .env("KUBECONFIG", &kubeconfig)
            .env("XDG_STATE_HOME", shop.monorepo.path().join(".git/test-state"))
            .dir(shop.monorepo.path())
            .run()
    };
    let slip = answered("y").expect(1).stdout;
    assert!(slip.contains("nothing was applied: `y` is not `yes`"), "{slip}");
    let interrupted = answered("\u{3}").expect(130).stdout;
    assert!(
        interrupted.contains("nothing was applied: interrupted"),
        "{interrupted}"
    );
    // What was drawn is wiped away before the question.
    // The question says what will happen, and where.
    let (before, _) = slip
        .split_once("Apply 1 create to shop/dev on cluster `test`? Type `yes`: ")
        .expect(&slip);
    let line = before.rsplit(['\n', '\r']).next().unwrap();
    assert!(
        !line.contains(['⠁', '⠂', '⠄', '⡀', '⢀', '⠠', '⠐', '⠈']),
        "{before:?}"
    );
    let nobody = shop.run(&["apply", "shop/dev"]).expect(64);
    let (plan, refusal) = nobody
        .stderr
        .split_once("error: confirmation required")
        .expect(&nobody.stderr);
    assert!(plan.contains("shop/dev"), "{plan}");
    assert!(refusal.contains("--yes"), "{refusal}");

    let yes = answered("yes").expect(0).stdout;
    assert!(!yes.contains("is not `yes`"), "{yes}");
    // Of a new namespace with two objects the plan says once that it does not exist, and the progress does not repeat
    // it.
    let new = format!("{ns}-new");
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": new}});
    shop.wants(
        "dev",
        &[
            map("map", &ns),
            resource(&space),
            map("one", &new),
            map("two", &new),
        ],
    );
    let fresh = answered("yes").expect(0).stdout;
    assert_eq!(fresh.matches("does not exist yet").count(), 1, "{fresh}");
    // Nothing to do is nothing to agree to.
    let nothing = shop.run(&["apply", "shop/dev"]).expect(0);
    assert!(
        nothing.stderr.contains("1 stack: no change"),
        "{}",
        nothing.stderr
    );
}

/// Without a cluster the base says what goes.
#[tokio::test]
async fn a_stack_that_is_deleted_whole_is_shown_as_deleted() {
    let monorepo = tiny_monorepo::monorepo();
    for stack in ["shop/dev", "shop/prod"] {
        tiny_monorepo::write_stack(&monorepo, stack, "shop", "info");
    }
    let base = monorepo.commit("Two stacks");
    monorepo.remove("appops/shop/dev");
    monorepo.commit("One less");
    let outcome = konverge(&monorepo, &["preview", "--base", &base, "--output", "json"]).expect(0);
    let plan: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let stack = &plan["stacks"][0];
    assert_eq!(
        (&stack["id"], &stack["basis"], &stack["summary"]["delete"]),
        (&"shop/dev".into(), &"spec".into(), &2.into()),
        "{plan}"
    );
}

/// The core that a repository needs is named by konverge.yaml, in every message and by every command.
#[test]
fn the_core_that_konverge_yaml_names_is_the_one_to_install() {
    let monorepo = Repository::konfig_example();
    monorepo.write("konverge.yaml", "version: 1\nkcl: {version: 0.12.4}\n");
    let here = |arguments: &[&str]| {
        let outcome = Konverge::new(arguments).dir(monorepo.path()).run().expect(1);
        outcome.stderr
    };
    let nowhere = ["kcl", "install", "--index", "http://127.0.0.1:9/simple"];
    let refused = here(&nowhere);
    assert!(refused.contains("konverge.yaml needs KCL 0.12.4"), "{refused}");
    assert!(refused.contains("0.12.4-cp"), "{refused}");
    assert!(here(&["kcl", "which"]).contains("konverge kcl install 0.12.4"));
    assert!(here(&["build", "storefront/dev"]).contains("run `konverge kcl install 0.12.4`"));
    // Elsewhere it is the recommended one.
    let outside = Konverge::new(nowhere).run().expect(1).stderr;
    assert!(outside.contains("kcl_lib-0.13.2-cp"), "{outside}");
    let list = Konverge::new(["kcl", "list"])
        .dir(monorepo.path())
        .run()
        .expect(0);
    assert!(list.stdout.contains("0.12.4  needed here\n"), "{}", list.stdout);
}

#[test]
fn a_missing_core_is_installed_by_itself_only_where_that_is_allowed() {
    let monorepo = Repository::konfig_example();
    let build = |config: &str, variable: Option<&str>| {
        monorepo.write("konverge.yaml", format!("version: 1\nkcl: {config}\n"));
        let build = Konverge::new(["build", "storefront/dev"]).dir(monorepo.path());
        // Someone who looks for it there finds nothing.
        let build = build.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
        let build = match variable {
            Some(name) => build.env(name, "true"),
            None => build,
        };
        build.run().expect(1).stderr
    };
    let auto = "{version: 0.12.4, install: auto}";
    let said = build(auto, None);
    assert!(said.contains("installing the KCL core 0.12.4"), "{said}");
    assert!(said.contains("Connection refused"), "{said}");
    for (config, variable) in [
        ("{version: 0.12.4}", None),
        (auto, Some("CI")),
        (auto, Some("GITHUB_ACTIONS")),
        (auto, Some("KONVERGE_OFFLINE")),
    ] {
        let said = build(config, variable);
        assert!(!said.contains("installing"), "{config} {variable:?}: {said}");
        assert!(said.contains("konverge kcl install 0.12.4"), "{said}");
    }
}

/// Without a core that can be tried, init says so and writes the recommended one.
#[test]
fn init_writes_no_core_that_it_has_not_tried() {
    let monorepo = Repository::konfig_example();
    monorepo.git(["rm", "-q", "konverge.yaml"]);
    // The edition of the whole monorepo comes before that of a single project.
    let module = monorepo.read("kcl.mod");
    let lines = module.lines().filter(|line| !line.starts_with("edition"));
    let module: String = lines.map(|line| format!("{line}\n")).collect();
    let module = module.replace("[package]\n", "[package]\nedition = \"0.12.4\"\n");
    monorepo.write("kcl.mod", module);
    let init = Konverge::new(["init", "--no-install"])
        .dir(monorepo.path())
        .run()
        .expect(0);
    let config = monorepo.read("konverge.yaml");
    assert!(config.contains("tried no core"), "{config}");
    assert!(config.contains("  version: 0.13.2\n"), "{config}");
    assert!(
        init.stderr.contains("`konverge kcl install 0.12.4`"),
        "{}",
        init.stderr
    );
}
