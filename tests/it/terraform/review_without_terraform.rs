//! A reviewed change of a mixed stack, merged where Terraform is missing: what can be done of it is done, and nothing
//! that nobody reviewed.

use std::path::{Path, PathBuf};

use crate::support::{ci_stage::Stage, terraform, tiny_monorepo};

/// A link to the executable, which can be taken away.
struct Binary {
    folder: tempfile::TempDir,
}

impl Binary {
    fn path(&self) -> PathBuf {
        self.folder.path().join("terraform")
    }

    fn is_there(&self) {
        std::os::unix::fs::symlink(terraform::binary(), self.path()).unwrap();
    }

    fn is_gone(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }
}

fn configuration(binary: &Path) -> String {
    format!("terraform: {{binary: '{}'}}\n", binary.display())
}

/// A database in Terraform, a map that reads its address, and one that needs nothing.
fn mixed(stage: &Stage, id: &str, address: &str, value: &str) {
    let project = id.split('/').next().unwrap();
    let map = |name: &str, data: &str| {
        format!(
            "    {{id = \"v1:ConfigMap:default:{project}-{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{project}-{name}\", namespace = \"default\"}}, data = {{value = \"{data}\"}}}}}}\n"
        )
    };
    let database = format!(
        "    {{id = \"terraform:builtin:terraform_data:database\", type = \"Terraform\", attributes = {{input = {{address = \"{address}\"}}}}}}\n"
    );
    let reads = map(
        "reads",
        "$kusion_path.terraform:builtin:terraform_data:database.output.address",
    );
    let program = format!("resources = [\n{database}{reads}{}]\n", map("alone", value));
    tiny_monorepo::write_program(&stage.monorepo, id, &program);
}

pub async fn merged_without_terraform() {
    let binary = Binary {
        folder: tempfile::tempdir().unwrap(),
    };
    binary.is_there();
    let mut stage = Stage::small(&configuration(&binary.path())).await;
    stage.reviewed(7, "mixed", |stage| mixed(stage, "halfway/dev", "10.0.0.7", "one"));

    binary.is_gone();
    let merged = stage.merge(7, "mixed");
    merged.outcome.check(1);
    for said in [
        "`terraform:builtin:terraform_data:database`",
        "install Terraform",
        "could not be planned: ",
    ] {
        assert!(merged.summary.contains(said), "{said}: {}", merged.summary);
    }
    assert_eq!(stage.value("halfway-alone").await.as_deref(), Some("one"));
    assert_eq!(stage.value("halfway-reads").await, None);

    // The same review holds for the rest.
    binary.is_there();
    stage.again().outcome.check(0);
    assert_eq!(stage.value("halfway-reads").await.as_deref(), Some("10.0.0.7"));
    let receipt = stage.receipt("halfway/dev");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");

    // A preview that could not plan everything says what a merge would do.
    binary.is_gone();
    stage.monorepo.checkout("main").branch("blind");
    mixed(&stage, "halfway/dev", "10.0.0.8", "two");
    stage.monorepo.commit("blind");
    stage.pull_request(8, "blind", "opened").outcome.check(1);
    let (_, comment) = stage.comments().pop().unwrap();
    for said in [
        "`halfway/dev` could not be planned in full",
        "skip 2 resources",
        "**failed in part** 1 to update",
        "**Merging** applies what could be planned.",
    ] {
        assert!(comment.contains(said), "{said}: {comment}");
    }
    stage.merge(8, "blind").outcome.check(1);
    assert_eq!(stage.value("halfway-alone").await.as_deref(), Some("two"));
    assert_eq!(stage.value("halfway-reads").await.as_deref(), Some("10.0.0.7"));

    // What nobody saw stops the stack when it can be planned.
    binary.is_there();
    let stopped = stage.again();
    stopped.outcome.check(3);
    assert!(
        stopped.outcome.stdout.contains("terraform_data:database"),
        "{}",
        stopped.outcome.stdout
    );
    assert_eq!(stage.value("halfway-reads").await.as_deref(), Some("10.0.0.7"));
    stage.approve(&stopped.digest()).outcome.check(0);
    assert_eq!(stage.value("halfway-reads").await.as_deref(), Some("10.0.0.8"));
}
