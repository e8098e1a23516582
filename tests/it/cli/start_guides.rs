//! The guides that go from nothing to the first apply, typed line for line. The tests' control plane stands in kind's and
//! EKS's place, MinIO in S3's; the cloud's own steps are not run.

use std::path::Path;

use crate::{
    meta::docs::{blocks, root},
    support::{
        cluster::Cluster,
        git::Repository,
        minio::Minio,
        process::{Konverge, Outcome},
        tiny_monorepo,
    },
};

fn guide(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/guides").join(name)).unwrap()
}

/// A shell in a monorepo, with `konverge` on the path and the credentials of cluster and bucket.
struct Shell<'a> {
    monorepo: &'a Repository,
    cluster: &'a Cluster,
}

impl Shell<'_> {
    fn type_in(&self, line: &str) -> Outcome {
        let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(self.monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY)
            .run()
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
    let bucket = Minio::shared().bucket("start-kind");
    let page = guide("start-kind.md");
    let config = blocks(&page, "yaml").remove(0);
    for part in ["http://127.0.0.1:9000", "kind-konverge", "konverge-states"] {
        assert!(config.contains(part), "{part}: {config}");
    }
    let config = config
        .replace("http://127.0.0.1:9000", Minio::shared().endpoint())
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

#[tokio::test(flavor = "multi_thread")]
async fn the_guides_for_eks_and_for_adopting_are_typed_as_they_stand() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("start-eks").await;
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "start/dev", &namespace, "one");
    monorepo.commit("A stack");
    let shell = Shell {
        monorepo: &monorepo,
        cluster,
    };
    let lines = typed(&guide("start-eks.md"));
    let begin = lines.iter().position(|line| line == "konverge doctor").unwrap();
    shell.type_all(&lines[..begin]);
    assert!(monorepo.path().join("konverge.adopt.yaml").exists());
    // The bucket and the cluster of the tests.
    let bucket = Minio::shared().bucket("start-eks");
    let config = monorepo.read("konverge.yaml");
    assert!(
        config.contains("  url: s3://my-bucket/konverge\n") || config.contains("s3://my-bucket/konverge"),
        "{config}"
    );
    let options = format!(
        "{bucket}/konverge?endpoint={}&allow_http=true&region=us-east-1",
        Minio::shared().endpoint()
    );
    let config = config
        .replace("my-bucket/konverge", &options)
        .replace("context: prod", "context: test");
    monorepo.write("konverge.yaml", config).commit("Set up");
    shell.type_all(&lines[begin..]);
    let told = shell.type_all(&typed(&guide("adopt.md")));
    let told = &answer(&told, "konverge adopt").stdout;
    assert!(told.contains("1 stack would change"), "{told}");
}
