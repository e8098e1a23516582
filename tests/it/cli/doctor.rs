//! `konverge doctor`: what is missing is named with its remedy, and what is there is tried for real.

use serde_json::Value;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    github::{Act, FakeGithub, World},
    process::{Konverge, Outcome},
};

fn findings(outcome: &Outcome) -> Vec<Value> {
    let document: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|_| panic!("{}{}", outcome.stdout, outcome.stderr));
    assert_eq!(document["version"], 1);
    document["findings"].as_array().unwrap().clone()
}

fn finding(findings: &[Value], what: &str) -> (String, String, String) {
    let found = findings.iter().find(|finding| finding["what"] == what);
    let found = found.unwrap_or_else(|| panic!("{what} is not in {findings:#?}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    let fixes: Vec<_> = found["fix"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fix| fix.as_str().unwrap())
        .collect();
    (text("verdict"), text("says"), fixes.join("\n"))
}

#[test]
fn a_machine_with_nothing_is_told_what_to_do() {
    let outcome = Konverge::new(["doctor", "--output", "json"]).run().expect(1);
    let found = findings(&outcome);
    assert_eq!(finding(&found, "git").0, "ok");
    let (verdict, _, fix) = finding(&found, "repository");
    assert_eq!(verdict, "missing");
    assert!(!fix.is_empty());
    let (verdict, _, fix) = finding(&found, "KCL core");
    assert_eq!(verdict, "missing");
    assert!(fix.contains("konverge kcl install"), "{fix}");
}

/// A stack that no job applies is an error, and so is a name that is always empty.
#[test]
fn a_stack_that_no_job_applies_fails() {
    let monorepo = Repository::konfig_example();
    let config = monorepo.read("konverge.yaml");
    let rule = "\nstacks:\n  - {match: '**', environment: production}\n";
    assert!(config.contains("\nstacks:\n"), "{config}");
    monorepo.write("konverge.yaml", config.replacen("\nstacks:\n", rule, 1));
    let workflow = |given: &str| {
        format!(
            "on: {{push: {{branches: [main]}}}}\njobs:\n  apply:\n    if: github.ref == 'refs/heads/main'\n    strategy: {{matrix: {{environment: [dev]}}}}\n    permissions: write-all\n    steps: [{{uses: konverge/konverge@v0, with: {{for-environment: '{given}'}}}}]\n"
        )
    };
    for (given, says) in [
        ("${{ matrix.environment }}", "no job of the workflows applies"),
        (
            "${{ matrix.enviroment }}",
            "`for-environment` is always empty in the job apply",
        ),
    ] {
        monorepo.write(".github/workflows/konverge.yml", workflow(given));
        let outcome = Konverge::new(["doctor", "--output", "json"])
            .dir(monorepo.path())
            .with_kcl()
            .run()
            .expect(1);
        let (verdict, said, fix) = finding(&findings(&outcome), "environments");
        assert_eq!(verdict, "missing");
        assert!(said.contains(says) && !fix.is_empty(), "{given}: {said} {fix}");
    }
    // All others of its findings are well, so the same with the right name is too.
    monorepo.write(".github/workflows/konverge.yml", workflow("production"));
    let outcome = Konverge::new(["doctor", "--output", "json"])
        .dir(monorepo.path())
        .with_kcl()
        .run();
    let found = findings(&outcome);
    assert!(
        found.iter().all(|one| one["what"] != "environments"),
        "{found:#?}"
    );
    assert_eq!(outcome.code, Some(0), "{found:#?}");
}

#[test]
fn what_is_there_is_tried() {
    let monorepo = Repository::konfig_example();
    let store = tempfile::tempdir().unwrap();
    let config = monorepo.read("konverge.yaml");
    let more = format!(
        "state:\n  url: file://{}\n  id: doctor\nclusters:\n  dev: {{kubeconfig_env: DEV_KUBECONFIG, context: test}}\n",
        store.path().display()
    );
    monorepo.write("konverge.yaml", format!("{config}{more}"));
    let run = |arguments: &[&str]| {
        Konverge::new(arguments)
            .dir(monorepo.path())
            .with_kcl()
            .env("DEV_KUBECONFIG", Cluster::shared().kubeconfig())
    };
    let outcome = run(&["doctor", "--output", "json"]).run().expect(0);
    let found = findings(&outcome);
    for what in [
        "git",
        "repository",
        "KCL core",
        "Terraform",
        "cluster dev",
        "store",
        "workflow job apply",
    ] {
        assert_eq!(finding(&found, what).0, "ok", "{what}: {found:#?}");
    }
    assert!(finding(&found, "cluster dev").1.starts_with("v1."), "{found:#?}");
    assert_eq!(finding(&found, "GitHub token").0, "unused");
    let left = std::fs::read_dir(store.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file());
    assert_eq!(left.count(), 0, "the probe leaves nothing behind");

    let text = run(&["doctor"]).env("DEV_KUBECONFIG", "").run().expect(1).stdout;
    assert!(text.contains("MISSING  clusters: "), "{text}");
    assert!(text.contains("DEV_KUBECONFIG"), "{text}");
}

/// The runner's own variable tells the forge. Of two forges none is taken, by `doctor` and by what needs one.
#[test]
fn the_forge_of_a_job_is_told_by_its_variable() {
    let monorepo = Repository::konfig_example();
    let forge = |variables: &[&str]| {
        let set = |konverge: Konverge, name: &&str| konverge.env(name, "true");
        let konverge = Konverge::new(["doctor", "--output", "json"]).dir(monorepo.path());
        let outcome = variables.iter().fold(konverge, set).run();
        finding(&findings(&outcome), "forge")
    };
    let (verdict, said, _) = forge(&["GITHUB_ACTIONS"]);
    assert_eq!(
        (verdict.as_str(), said.as_str()),
        ("ok", "GitHub, because GITHUB_ACTIONS is `true`")
    );
    let (verdict, said, _) = forge(&["GITHUB_ACTIONS", "GITEA_ACTIONS"]);
    assert_eq!(
        (verdict.as_str(), said.as_str()),
        ("ok", "Gitea, because GITEA_ACTIONS is `true`")
    );
    let (verdict, said, _) = forge(&["GITLAB_CI"]);
    assert_eq!(
        (verdict.as_str(), said.as_str()),
        ("ok", "GitLab, because GITLAB_CI is `true`")
    );
    assert_eq!(forge(&[]).0, "unused");
    let (verdict, said, fix) = forge(&["GITHUB_ACTIONS", "GITLAB_CI"]);
    assert_eq!(verdict, "missing");
    assert!(
        said.contains("GITHUB_ACTIONS of GitHub and GITLAB_CI of GitLab"),
        "{said}"
    );
    assert!(fix.contains("env -u GITLAB_CI"), "{fix}");

    let job = |variables: &[&str]| {
        let set = |konverge: Konverge, name: &&str| konverge.env(name, "true");
        let konverge = Konverge::new(["ci"]).dir(monorepo.path());
        variables.iter().fold(konverge, set).run().expect(1).stderr
    };
    let said = job(&["GITHUB_ACTIONS", "GITLAB_CI"]);
    assert!(
        said.contains("the environment has the variables of two forges"),
        "{said}"
    );
    let said = job(&["GITHUB_ACTIONS", "GITEA_ACTIONS"]);
    assert!(said.contains("not running in Gitea Actions"), "{said}");
    let said = job(&["GITLAB_CI"]);
    assert!(said.contains("not running in a pipeline of GitLab"), "{said}");
}

#[tokio::test]
async fn a_token_that_may_not_read_is_told_which_permission_it_lacks() {
    let fake = FakeGithub::start(World::new()).await;
    let monorepo = Repository::konfig_example();
    let run = |token: &'static str| {
        let (dir, api) = (monorepo.path().to_owned(), fake.api_url());
        tokio::task::spawn_blocking(move || {
            Konverge::new(["doctor", "--output", "json"])
                .dir(dir)
                .with_kcl()
                .env("GITHUB_ACTIONS", "true")
                .env("GITHUB_REPOSITORY", "acme/konfig")
                .env("GITHUB_API_URL", api)
                .env("GITHUB_TOKEN", token)
                .run()
        })
    };
    let well = findings(&run("ghs_token").await.unwrap().expect(0));
    assert_eq!(finding(&well, "GitHub token").0, "ok");
    let refused = serde_json::json!({"message": "Resource not accessible by integration"});
    fake.next("GET", "/pulls", Act::Answer(403, Vec::new(), refused));
    let lacking = findings(&run("ghs_token").await.unwrap().expect(1));
    let (verdict, _, fix) = finding(&lacking, "GitHub token");
    assert_eq!(verdict, "missing");
    assert!(fix.contains("pull-requests: read"), "{fix}");
    let none = findings(&run("").await.unwrap().expect(1));
    assert!(finding(&none, "GitHub token").2.contains("github.token"));
}

/// What is looked at on a machine, each in its failing case and with what mends it.
#[test]
fn whatever_fails_is_told_with_its_remedy() {
    let monorepo = Repository::konfig_example();
    // Nothing but what the test starts it by.
    let nothing = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/setpriv", nothing.path().join("setpriv")).unwrap();
    let gone = "apiVersion: v1\nkind: Config\ncurrent-context: gone\nclusters:\n- {name: gone, cluster: {server: 'https://127.0.0.1:9'}}\ncontexts:\n- {name: gone, context: {cluster: gone, user: gone}}\nusers:\n- {name: gone, user: {token: t}}\n";
    monorepo.write(".git/kubeconfig", gone);
    let config = monorepo.read("konverge.yaml");
    let more = "state: {url: 'file:///proc/nowhere', id: doctor}\nclusters: {gone: {kubeconfig_env: GONE}}\n";
    monorepo.write("konverge.yaml", format!("{config}{more}"));
    let workflow = ".github/workflows/konverge.yml";
    let lacking = monorepo
        .read(workflow)
        .replacen("statuses: write", "statuses: read", 1);
    monorepo.write(workflow, lacking);
    let outcome = Konverge::new(["doctor", "--output", "json"])
        .dir(monorepo.path())
        .env("PATH", nothing.path())
        .env("XDG_DATA_HOME", nothing.path())
        .env("GONE", monorepo.path().join(".git/kubeconfig"))
        .run()
        .expect(1);
    let found = findings(&outcome);
    for (what, says, remedy) in [
        ("git", "git", "apt-get install git"),
        ("KCL core", "0.13.2", "konverge kcl install"),
        ("Terraform", "terraform", "terraform"),
        ("cluster gone", "127.0.0.1:9", ""),
        ("store", "/proc/nowhere", ""),
        ("workflow job preview", "statuses", "statuses: write"),
    ] {
        let (verdict, told, fix) = finding(&found, what);
        assert_eq!(verdict, "missing", "{what}: {told}");
        assert!(told.contains(says), "{what}: {told}");
        assert!(!fix.is_empty() && fix.contains(remedy), "{what}: {told}: {fix}");
    }
}
