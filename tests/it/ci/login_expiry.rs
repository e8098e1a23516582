//! Credentials of a login that expire while Terraform runs: the error names the login, its identity, the subject of the
//! job and what to do; the next run continues.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use crate::support::{ci_stage::Stage, clouds::Clouds, terraform, tiny_monorepo::write_program};

/// The seconds that the credentials live in the tests in which they expire.
const SHORT: u64 = 2;

/// Terraform whose next step of a name outlives such credentials and fails as a provider does then.
struct SlowTerraform(tempfile::TempDir);

impl SlowTerraform {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let diagnostic = r#"{"type":"diagnostic","diagnostic":{"severity":"error","summary":"ExpiredToken","detail":"the token is no longer valid","address":"terraform_data.kept"}}"#;
        let script = format!(
            "#!/bin/sh\nif test -e '{0}'/fail-$1; then /bin/sleep {1}; echo '{diagnostic}'; exit 1; fi\nexec '{2}' \"$@\"\n",
            folder.path().display(),
            SHORT + 1,
            terraform::binary().display()
        );
        let slow = Self(folder);
        std::fs::write(slow.binary(), script).unwrap();
        std::fs::set_permissions(slow.binary(), std::fs::Permissions::from_mode(0o755)).unwrap();
        slow
    }

    fn binary(&self) -> PathBuf {
        self.0.path().join("terraform")
    }

    fn fails(&self, step: &str, does: bool) {
        let mark = self.0.path().join(format!("fail-{step}"));
        if does {
            std::fs::write(mark, "").unwrap()
        } else {
            std::fs::remove_file(mark).unwrap()
        }
    }
}

async fn stage(terraform: &SlowTerraform, clouds: &Clouds) -> Stage {
    let (account, preview) = (Clouds::ACCOUNT, Clouds::PREVIEW_ACCOUNT);
    let config = format!(
        "terraform: {{binary: '{}'}}\nlogins: {{prod: {{google: {{service_account: {account}, preview_service_account: {preview}}}}}}}\nstacks: [{{match: 'appops/*/prod', login: prod}}]\n",
        terraform.binary().display()
    );
    let mut stage = Stage::small(&config).await;
    stage.env = clouds.job();
    stage.env.push(clouds.google_federation());
    stage
}

fn keeps(stage: &Stage, value: &str) {
    let resource = format!(
        "{{id = \"terraform:builtin:terraform_data:kept\", type = \"Terraform\", attributes = {{input = \"{value}\"}}}}"
    );
    write_program(
        &stage.monorepo,
        "expiry/prod",
        &format!("resources = [{resource}]\n"),
    );
}

const EXPIRED: &str = "the credentials of its login expired before Terraform ended";

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_names_the_login_and_the_next_run_goes_on() {
    let (slow, clouds) = (
        SlowTerraform::new(),
        Clouds::start("ya29.short-lived", SHORT).await,
    );
    let mut stage = stage(&slow, &clouds).await;
    slow.fails("plan", true);
    stage.monorepo.checkout("main").branch("kept");
    keeps(&stage, "one");
    stage.monorepo.commit("kept");
    let ran = stage.pull_request(7, "kept", "opened");
    ran.outcome.check(1);
    let (_, comment) = stage.comments().pop().unwrap();
    says(&comment, ("prod, for previews", Clouds::PREVIEW_ACCOUNT));

    slow.fails("plan", false);
    stage.pull_request(7, "kept", "synchronize").outcome.check(0);
    slow.fails("apply", true);
    let applied = stage.merge(7, "kept");
    applied.outcome.check(1);
    says(&applied.summary, ("prod", Clouds::ACCOUNT));
    assert!(applied.summary.contains("ExpiredToken"), "{}", applied.summary);

    slow.fails("apply", false);
    clouds.granted();
    let tip = stage.monorepo.rev("main");
    stage.push(&tip, &tip).outcome.check(0);
    assert!(clouds.granted().contains(&"trade".to_owned()), "it logs in again");
    let receipt = stage.receipt("expiry/prod");
    assert_eq!(receipt["pullRequests"][0]["number"], 7, "{receipt}");
}

/// The error, the login, who it is, the subject, and the next step.
fn says(text: &str, (login, account): (&str, &str)) {
    for said in [
        EXPIRED,
        &format!("the login `{login}` gave Terraform credentials of"),
        account,
        Clouds::SUBJECT,
        "the next run logs in again and continues",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("ya29"), "{text}");
}

/// The same refusal while the credentials are valid is the provider's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_expiry_is_the_provider_s() {
    let (slow, clouds) = (SlowTerraform::new(), Clouds::start("ya29.long-lived", 3600).await);
    let mut stage = stage(&slow, &clouds).await;
    slow.fails("plan", true);
    stage.monorepo.checkout("main").branch("kept");
    keeps(&stage, "one");
    stage.monorepo.commit("kept");
    stage.pull_request(7, "kept", "opened").outcome.check(1);
    let (_, comment) = stage.comments().pop().unwrap();
    assert!(comment.contains("ExpiredToken"), "{comment}");
    assert!(!comment.contains(EXPIRED), "{comment}");
}
