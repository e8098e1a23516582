//! `konverge doctor` in a job: it logs in with each login, for previews and for applies, and says which subject GitHub
//! sends.

use serde_json::Value;

use crate::support::{
    clouds::Clouds,
    git::Repository,
    moto::Moto,
    process::{Konverge, Outcome},
};

const TOKEN: &str = "the-short-lived-token-of-a-cloud";
const OTHER: &str = "77777777-8888-7777-6666-555555555555";

/// One login for each cloud, one at two clouds, and three that a cloud refuses.
fn config() -> String {
    let (account, tenant, application) = (Clouds::ACCOUNT, Clouds::TENANT, Clouds::APPLICATION);
    let (role, provider) = (Clouds::RAM_ROLE, Clouds::RAM_PROVIDER);
    format!(
        "logins:
  amazon: {{aws: {{role: 'arn:aws:iam::111122223333:role/apply', preview_role: 'arn:aws:iam::111122223333:role/plan'}}}}
  google: {{google: {{service_account: {account}}}}}
  azure: {{azure: {{client_id: {application}, tenant_id: {tenant}}}}}
  alibaba: {{alibaba: {{role: '{role}', oidc_provider: '{provider}'}}}}
  both: {{aws: {{role: 'arn:aws:iam::444455556666:role/apply'}}, google: {{service_account: {account}}}}}
  other-google: {{google: {{service_account: {account}, preview_service_account: plan@other.iam.gserviceaccount.com}}}}
  other-azure: {{azure: {{client_id: {OTHER}, tenant_id: {tenant}}}}}
  other-alibaba: {{alibaba: {{role: 'acs:ram::1:role/other', oidc_provider: '{provider}'}}}}
"
    )
}

fn doctor(repository: &Repository, clouds: &Clouds, sts: &str) -> Konverge {
    let konverge = Konverge::new(["doctor", "--output", "json"])
        .dir(repository.path())
        .with_kcl()
        .env("GITHUB_ACTIONS", "true")
        .env("AWS_ENDPOINT_URL_STS", sts)
        .env("AZURE_AUTHORITY_HOST", &clouds.url)
        .env("ALIBABA_CLOUD_STS_ENDPOINT", &clouds.url);
    let variables = clouds.job().into_iter().chain([clouds.google_federation()]);
    variables.fold(konverge, |konverge, (name, value)| konverge.env(name, value))
}

/// The verdict, the text and the remedies of each login.
fn logins(outcome: &Outcome) -> Vec<(String, String, String, String)> {
    let document: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|_| panic!("{}{}", outcome.stdout, outcome.stderr));
    let findings = document["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings
        .filter_map(|finding| {
            let name = finding["what"].as_str()?.strip_prefix("login ")?.to_owned();
            let fixes = finding["fix"].as_array().unwrap().iter().map(text);
            let fixes = fixes.collect::<Vec<_>>().join("\n");
            Some((name, text(&finding["verdict"]), text(&finding["says"]), fixes))
        })
        .collect()
}

fn repository() -> Repository {
    let repository = Repository::konfig_example();
    let config = repository.read("konverge.yaml") + &config();
    repository.write("konverge.yaml", config);
    repository
}

#[tokio::test(flavor = "multi_thread")]
async fn each_login_logs_in_and_says_the_subject() {
    let (clouds, repository) = (Clouds::start(TOKEN, 3600).await, repository());
    let outcome = doctor(&repository, &clouds, Moto::shared().endpoint()).run();
    let found = logins(&outcome);
    let role = |name: &str| format!("logged in as `arn:aws:iam::111122223333:role/{name}`");
    let account = format!("logged in as `{}`", Clouds::ACCOUNT);
    let both = format!("`arn:aws:iam::444455556666:role/apply`, `{}`", Clouds::ACCOUNT);
    for (name, says) in [
        ("amazon", role("apply")),
        ("amazon, for previews", role("plan")),
        ("google", account.clone()),
        ("azure", format!("logged in as `{}`", Clouds::APPLICATION)),
        ("alibaba", format!("logged in as `{}`", Clouds::RAM_ROLE)),
        ("both", format!("logged in as {both}")),
        ("other-google", account),
    ] {
        let found = found.iter().find(|found| found.0 == name).expect(name);
        assert_eq!(found.1, "ok", "{found:?}");
        let subject = format!("{says}; GitHub sends the subject `{}`", Clouds::SUBJECT);
        assert_eq!(found.2, subject);
    }
    // Who is refused is told as whom, what GitHub said, and what to do.
    for (name, identity) in [
        ("other-google, for previews", "plan@other.iam.gserviceaccount.com"),
        ("other-azure", OTHER),
        ("other-alibaba", "acs:ram::1:role/other"),
    ] {
        refused(&found, name, identity);
    }
    assert_eq!(found.len(), 10, "{found:?}");
    let granted = clouds.granted();
    let entra = |what: &&String| *what == "entra https://management.azure.com/.default";
    assert_eq!(granted.iter().filter(entra).count(), 1, "{granted:?}");
    for secret in [TOKEN, "job-token-for", "ram-secret", "the-traded-token"] {
        assert!(!outcome.stdout.contains(secret) && !outcome.stderr.contains(secret));
    }
}

fn refused(found: &[(String, String, String, String)], name: &str, identity: &str) {
    let found = found.iter().find(|found| found.0 == name).expect(name);
    assert_eq!(found.1, "missing", "{found:?}");
    assert!(
        found.2.starts_with(&format!("login `{name}`: ")) && found.2.contains("could not be obtained"),
        "{found:?}"
    );
    let trust = format!(
        "the token of this job has the subject `{}`: let `{identity}` trust it",
        Clouds::SUBJECT
    );
    assert!(found.3.contains(&trust), "{found:?}");
    assert!(found.3.contains("docs/guides/oidc.md"), "{found:?}");
}

/// AWS refuses the job, and quotes its token; a job without `id-token: write` is told what it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_aws_and_a_job_without_a_token_say_what_to_do() {
    let (clouds, repository) = (Clouds::start(TOKEN, 3600).await, repository());
    // It knows nothing of AWS.
    let outcome = doctor(&repository, &clouds, &clouds.url).run().expect(1);
    let found = logins(&outcome);
    refused(&found, "amazon", "arn:aws:iam::111122223333:role/apply");
    refused(
        &found,
        "amazon, for previews",
        "arn:aws:iam::111122223333:role/plan",
    );
    let both = format!("arn:aws:iam::444455556666:role/apply`, `{}", Clouds::ACCOUNT);
    refused(&found, "both", &both);
    assert!(!outcome.stdout.contains("job-token-for"), "{}", outcome.stdout);

    let without = doctor(&repository, &clouds, Moto::shared().endpoint())
        .env("ACTIONS_ID_TOKEN_REQUEST_URL", "")
        .env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "")
        .run()
        .expect(1);
    for name in ["amazon", "azure", "alibaba"] {
        let found = logins(&without);
        let found = found.iter().find(|found| found.0 == name).expect(name);
        assert_eq!(found.1, "missing", "{found:?}");
        assert!(found.3.contains("permissions: {id-token: write}"), "{found:?}");
    }
    clouds.granted();
    // Outside of a job nobody is asked.
    let by_hand = doctor(&repository, &clouds, Moto::shared().endpoint())
        .env("GITHUB_ACTIONS", "false")
        .run();
    assert!(logins(&by_hand).is_empty() && clouds.granted().is_empty());
    assert!(
        by_hand
            .stdout
            .contains("8 logins of konverge.yaml: not checked outside of a job"),
        "{}",
        by_hand.stdout
    );
}

/// Two jobs at once get credentials of their own.
#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_log_in_at_once() {
    let (clouds, repository) = (Clouds::start(TOKEN, 3600).await, repository());
    let run = || {
        let command = doctor(&repository, &clouds, Moto::shared().endpoint());
        tokio::task::spawn_blocking(move || command.run())
    };
    let (first, second) = tokio::join!(run(), run());
    let (first, second) = (logins(&first.unwrap()), logins(&second.unwrap()));
    assert_eq!(first, second);
    assert_eq!(first.iter().filter(|found| found.1 == "ok").count(), 7);
}
