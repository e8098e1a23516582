//! The guides that go from nothing to the first apply, typed line for line. The tests' control plane stands in kind's
//! and EKS's place, Versity's gateway in that of S3 and of MinIO; the cloud's own steps are not run.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::first_run::AT_A_TERMINAL;
use crate::{
    meta::docs::{blocks, root},
    support::{
        ci_stage::Stage,
        cluster::Cluster,
        git::Repository,
        kcl,
        process::{Konverge, Outcome},
        s3::S3,
        tiny_monorepo,
    },
};

fn guide(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/guides").join(name)).unwrap()
}

/// A shell in a monorepo, with `konverge` on the path and the credentials of cluster and bucket.
pub(super) struct Shell<'a> {
    pub monorepo: &'a Repository,
    pub cluster: &'a Cluster,
}

impl Shell<'_> {
    pub fn type_in(&self, line: &str) -> Outcome {
        let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(self.monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY);
        for who in ["AUTHOR", "COMMITTER"] {
            shell = shell.env(&format!("GIT_{who}_NAME"), "S");
            shell = shell.env(&format!("GIT_{who}_EMAIL"), "s@example.com");
        }
        shell.run()
    }

    /// The same at a terminal, with `yes` as the answer to a question.
    pub fn type_at_a_terminal(&self, line: &str) -> Outcome {
        let quoted = format!("'{}'", line.replace('\'', r"'\''"));
        let python = kcl::interpreter();
        let terminal = AT_A_TERMINAL.replace('\'', r"'\''");
        self.type_in(&format!(
            "NO_COLOR=1 TERM=xterm '{}' -c '{terminal}' yes /bin/sh -c {quoted}",
            python.display()
        ))
    }

    /// Types the lines, but for the installation of the core; the answers by line.
    fn type_all(&self, lines: &[String]) -> Vec<(String, Outcome)> {
        let lines = lines.iter().filter(|line| *line != "konverge kcl install");
        lines
            .map(|line| (line.clone(), self.type_in(line).expect(0)))
            .collect()
    }
}

fn typed(page: &str) -> Vec<String> {
    let text = blocks(page, "sh").join("\n");
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}

fn answer<'a>(answers: &'a [(String, Outcome)], line: &str) -> &'a Outcome {
    let found = answers.iter().find(|(typed, _)| typed == line);
    &found
        .unwrap_or_else(|| panic!("the guide has no `{line}` any more"))
        .1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_for_kind_goes_from_nothing_to_the_first_apply() {
    // Its stack has the Namespace of the example's, so the cluster is its own.
    let cluster = &Cluster::start();
    cluster.start_controllers();
    let bucket = S3::shared().bucket("start-kind");
    let page = guide("start-kind.md");
    let config = blocks(&page, "yaml").remove(0);
    for part in ["http://127.0.0.1:9000", "kind-konverge", "konverge-states"] {
        assert!(config.contains(part), "{part}: {config}");
    }
    let config = config
        .replace("http://127.0.0.1:9000", S3::shared().endpoint())
        .replace("kind-konverge", "test")
        .replace("konverge-states", &bucket);
    let monorepo = Repository::konfig_example();
    monorepo
        .write("konverge.yaml", config)
        .commit("The guide's configuration");
    let shell = Shell {
        monorepo: &monorepo,
        cluster,
    };
    let answers = shell.type_all(&typed(&page));
    let preview = &answer(&answers, "konverge preview storefront/dev").stdout;
    assert!(preview.contains("create"), "{preview}");
    let applied = &answer(&answers, "konverge apply storefront/dev --yes").stdout;
    assert!(applied.contains("applied"), "{applied}");
    let destroyed = &answer(&answers, "konverge destroy storefront/dev --yes").stdout;
    assert!(
        destroyed.contains("applied") || destroyed.contains("destroyed"),
        "{destroyed}"
    );
}

/// The jobs that the guide shows are those that `init` writes, but for the events of a merge queue and of a dispatch.
fn shows_the_workflow_of_init(page: &str, written: &str) {
    let parse = |text: &str| konverge_base::yaml::from_str::<Value>(text).unwrap()["jobs"].clone();
    let (shown, written) = (parse(&blocks(page, "yaml")[0]), parse(written));
    for job in ["preview", "apply"] {
        for key in ["runs-on", "timeout-minutes", "permissions", "steps"] {
            assert!(!shown[job][key].is_null(), "{job}: {key}");
            assert_eq!(shown[job][key], written[job][key], "{job}: {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guides_for_eks_and_for_adopting_are_typed_as_they_stand() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("start-eks").await;
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "start/dev", &namespace, "one");
    // This one runs already.
    let earlier = cluster.namespace("start-eks-earlier").await;
    tiny_monorepo::write_stack(&monorepo, "earlier/dev", &earlier, "one");
    let maps = |namespace: &str| {
        let namespace = namespace.to_owned();
        async move { Api::<ConfigMap>::namespaced(cluster.client().await, &namespace) }
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"level": "one", "color": "green"}});
    let applied = PatchParams::apply("kubectl");
    let applied = maps(&earlier)
        .await
        .patch("settings", &applied, &Patch::Apply(map))
        .await;
    applied.unwrap();
    monorepo.commit("A stack");
    let shell = Shell {
        monorepo: &monorepo,
        cluster,
    };
    let page = guide("start-eks.md");
    let lines = typed(&page);
    let begin = lines.iter().position(|line| line == "konverge doctor").unwrap();
    shell.type_all(&lines[..begin]);
    assert!(monorepo.path().join("konverge.adopt.yaml").exists());
    shows_the_workflow_of_init(&page, &monorepo.read(".github/workflows/konverge.yml"));
    // The bucket and the cluster of the tests.
    let bucket = S3::shared().bucket("start-eks");
    let config = monorepo.read("konverge.yaml");
    assert!(
        config.contains("  url: s3://my-bucket/konverge\n") || config.contains("s3://my-bucket/konverge"),
        "{config}"
    );
    let options = format!(
        "{bucket}/konverge?endpoint={}&allow_http=true&region=us-east-1",
        S3::shared().endpoint()
    );
    let config = config
        .replace("my-bucket/konverge", &options)
        .replace("context: prod", "context: test");
    monorepo.write("konverge.yaml", config).commit("Set up");
    shell.type_all(&lines[begin..]);
    let told = shell.type_all(&typed(&guide("adopt.md")));
    let told = &answer(&told, "konverge adopt").stdout;
    assert!(told.contains("1 stack would change"), "{told}");

    // The pull request with the file takes over what runs, and one that edits a stack is the first apply of a new one.
    let adopted = monorepo.read("konverge.adopt.yaml");
    assert!(adopted.ends_with("stacks:\n  - earlier/dev\n"), "{adopted}");
    let mut stage = Stage::newcomer(monorepo).await;
    // What `init` wrote asks for one approval.
    let (head, _) = stage.reviewed(7, "adopt", |_| {});
    stage.approved_by(7, "grace", &head);
    stage.merge(7, "adopt").outcome.check(0);
    let owner = async || {
        let map = maps(&earlier).await.get("settings").await.unwrap();
        map.metadata
            .annotations
            .unwrap_or_default()
            .get("konverge/stack")
            .cloned()
    };
    assert_eq!(owner().await.as_deref(), Some("earlier/dev"));
    assert!(
        maps(&namespace)
            .await
            .get_opt("settings")
            .await
            .unwrap()
            .is_none()
    );
    let (head, _) = stage.reviewed(8, "first", |stage| {
        tiny_monorepo::write_stack(&stage.monorepo, "start/dev", &namespace, "two");
    });
    stage.approved_by(8, "grace", &head);
    stage.merge(8, "first").outcome.check(0);
    let made = maps(&namespace).await.get("settings").await.unwrap();
    assert_eq!(made.data.unwrap()["level"], "two");
}

/// The pages for the night, typed at a terminal by one who answers `yes`, with the serials of this stack.
#[tokio::test(flavor = "multi_thread")]
async fn the_guides_for_the_night_are_typed_as_they_stand() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("night").await;
    let monorepo = tiny_monorepo::monorepo();
    let bucket = S3::shared().bucket("night");
    monorepo.write(
        "konverge.yaml",
        format!(
            "version: 1\nstate:\n  id: night\n  url: s3://{bucket}/konverge\n  options: {{endpoint: '{}', region: us-east-1, path_style: 'true', allow_http: 'true'}}\nclusters: {{test: {{}}}}\nkcl: {{version: 0.13.2}}\n",
            S3::shared().endpoint()
        ),
    );
    let shell = Shell {
        monorepo: &monorepo,
        cluster,
    };
    let write = |level: &str| {
        tiny_monorepo::write_stack(&monorepo, "storefront/dev", &namespace, level);
        monorepo.commit(level);
    };
    for level in ["one", "two"] {
        write(level);
        shell.type_in("konverge apply storefront/dev --yes").expect(0);
    }
    // An apply that is still to come.
    write("three");
    let level = async || {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, &namespace);
        maps.get("settings").await.unwrap().data.unwrap()["level"].clone()
    };
    let mut answers = Vec::new();
    for (page, serials, after) in [
        ("on-call.md", [("--to 11", "--to 1")].as_slice(), "one"),
        (
            "roll-back.md",
            &[(" 11 12", " 1 2"), ("--to 11", "--to 2")],
            "two",
        ),
    ] {
        for line in typed(&guide(page)) {
            let line = serials
                .iter()
                .fold(line, |line, (from, to)| line.replace(from, to));
            answers.push((line.clone(), shell.type_at_a_terminal(&line).expect(0)));
        }
        assert_eq!(level().await, after, "{page}");
    }
    let told = |begin: &str| {
        let lines = answers.iter().filter(|(line, _)| line.starts_with(begin));
        let told: String = lines.map(|(_, answer)| answer.stdout.clone()).collect();
        assert!(!told.is_empty(), "no guide has `{begin}` any more");
        told
    };
    assert!(told("konverge status  ").contains("database failover, ask @sre"));
    assert!(told("konverge status storefront/dev").contains("changes pending"));
    assert!(told("konverge state show").contains("level: two"));
    assert!(told("konverge apply storefront/dev").contains("Apply 1 update to storefront/dev"));
    assert!(told("konverge state diff storefront/dev").contains("level: two"));
    assert!(told("konverge state rollback").contains("Roll storefront/dev back to serial 1"));
}
