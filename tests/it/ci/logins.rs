//! The login of a stack: what its Terraform processes see, who they are at AWS, how often GitHub and AWS are asked, and
//! what is refused before anything is asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use serde_json::json;

use crate::support::{
    ci_stage::Stage, clouds::Clouds, moto::Moto, objects::Objects, s3::S3, terraform,
    tiny_monorepo::write_program,
};

const PROD: &str = "111122223333";
const DEV: &str = "444455556666";
pub(super) const HOUR: u64 = 3600;

/// Terraform that writes down what each of its processes sees.
pub(super) struct Watched {
    folder: tempfile::TempDir,
}

/// One process: its step, its module and its variables.
pub(super) struct Process {
    pub(super) step: String,
    module: String,
    variables: BTreeMap<String, String>,
}

impl Watched {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\nn='{0}'/$1.$$\n/usr/bin/env -0 >$n.env\n/bin/cat main.tf.json >$n.module 2>/dev/null\nexec '{1}' \"$@\"\n",
            folder.path().display(),
            terraform::binary().display()
        );
        let watched = Self { folder };
        std::fs::write(watched.binary(), script).unwrap();
        std::fs::set_permissions(watched.binary(), std::fs::Permissions::from_mode(0o755)).unwrap();
        watched
    }

    pub(super) fn binary(&self) -> PathBuf {
        self.folder.path().join("terraform")
    }

    fn config(&self) -> String {
        format!("terraform: {{binary: '{}'}}\n", self.binary().display())
    }

    /// The processes since the last time.
    pub(super) fn processes(&self) -> Vec<Process> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "env") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let variables = text.split('\0').filter_map(|line| line.split_once('='));
            // The shell's own.
            let variables = variables.filter(|(name, _)| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            found.push(Process {
                step: name.split('.').next().unwrap().to_owned(),
                module: std::fs::read_to_string(path.with_extension("module")).unwrap_or_default(),
                variables: variables
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            });
            std::fs::remove_file(path).unwrap();
        }
        found
    }
}

/// What every Terraform process sees, of no cloud.
const PLAIN: [&str; 12] = [
    "CHECKPOINT_DISABLE",
    "GOGC",
    "GOMEMLIMIT",
    "HOME",
    "LC_ALL",
    "PATH",
    "TF_CLI_CONFIG_FILE",
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "TF_LOG",
    "TMPDIR",
    "TZ",
];

fn login(name: &str, account: &str, more: &str) -> String {
    format!(
        "  {name}: {{aws: {{role: 'arn:aws:iam::{account}:role/apply', preview_role: 'arn:aws:iam::{account}:role/plan'{more}}}}}\n"
    )
}

pub(super) fn rules() -> String {
    let logins = login("prod", PROD, ", region: eu-central-1") + &login("dev", DEV, "");
    format!(
        "logins:\n{logins}stacks:\n- {{match: 'appops/*/prod', login: prod}}\n- {{match: 'appops/*/dev', login: dev}}\n"
    )
}

/// A stack that keeps a value by Terraform, without a provider to install.
fn keeps(stage: &Stage, id: &str, value: &str) {
    let resource = format!(
        "{{id = \"terraform:builtin:terraform_data:kept\", type = \"Terraform\", attributes = {{input = \"{value}\"}}}}"
    );
    write_program(&stage.monorepo, id, &format!("resources = [{resource}]\n"));
}

/// The job's own variables, which no stack with a login may see.
pub(super) fn of_job(clouds: &Clouds, moto: &Moto) -> Vec<(&'static str, String)> {
    let mut variables = clouds.job();
    for (name, value) in [
        ("AWS_PROFILE", "the-job"),
        ("AWS_ROLE_ARN", "arn:aws:iam::999999999999:role/job"),
        ("AWS_SESSION_TOKEN", "the-session-of-the-job"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/home/job/credentials"),
        ("AWS_REGION", "us-east-1"),
        ("GOOGLE_CREDENTIALS", "of-another-cloud"),
        ("ARM_CLIENT_SECRET", "of-a-third-cloud"),
    ] {
        variables.push((name, value.to_owned()));
    }
    variables.push(("AWS_ENDPOINT_URL_STS", moto.endpoint().to_owned()));
    variables
}

/// Who somebody with this key is at AWS.
async fn identity(moto: &Moto, key: &str) -> String {
    let proof = format!(
        "AWS4-HMAC-SHA256 Credential={key}/20260101/us-east-1/sts/aws4_request, SignedHeaders=host, Signature=0"
    );
    let url = format!("{}/?Action=GetCallerIdentity&Version=2011-06-15", moto.endpoint());
    let request = reqwest::Client::new().get(url).header("authorization", proof);
    let text = request.send().await.unwrap().text().await.unwrap();
    let (_, rest) = text.split_once("<Arn>").unwrap_or_else(|| panic!("{text}"));
    rest.split_once("</Arn>").unwrap().0.to_owned()
}

/// Each process that runs providers sees the keys of one account, and no other variable of any cloud.
async fn check(moto: &Moto, processes: &[Process], role: &str) {
    let mut seen = BTreeSet::new();
    for process in processes {
        let names: BTreeSet<&str> = process.variables.keys().map(String::as_str).collect();
        if !["plan", "apply", "show"].contains(&process.step.as_str()) {
            let is_of_cloud = |name: &&&str| {
                ["AWS_", "GOOGLE_", "ARM_", "ACTIONS_"]
                    .iter()
                    .any(|start| name.starts_with(start))
            };
            assert_eq!(names.iter().find(is_of_cloud), None, "{}", process.step);
            continue;
        }
        let is_prod = process.module.contains("of-prod");
        assert!(is_prod != process.module.contains("of-dev"), "{}", process.module);
        let mut expected: BTreeSet<&str> = PLAIN.into();
        expected.extend(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]);
        expected.insert("TF_DATA_DIR");
        expected.extend(is_prod.then_some("AWS_REGION"));
        assert_eq!(names, expected, "{}", process.step);
        let region = process.variables.get("AWS_REGION").map(String::as_str);
        assert_eq!(region, is_prod.then_some("eu-central-1"));
        assert_ne!(process.variables["AWS_SESSION_TOKEN"], "the-session-of-the-job");
        let account = if is_prod { PROD } else { DEV };
        let who = identity(moto, &process.variables["AWS_ACCESS_KEY_ID"]).await;
        let expected = format!("arn:aws:sts::{account}:assumed-role/{role}/konverge");
        assert_eq!(who, expected, "{}", process.step);
        seen.insert((process.step.as_str(), is_prod));
    }
    assert!(
        seen.contains(&("plan", true)) && seen.contains(&("plan", false)),
        "{seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_stack_is_one_account_and_sees_nothing_of_the_job() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let mut stage = Stage::small(&(watched.config() + &rules())).await;
    stage.env = of_job(&clouds, moto);
    let (_, preview) = stage.reviewed(7, "both", |stage| {
        keeps(stage, "accounts/dev", "of-dev");
        keeps(stage, "accounts/prod", "of-prod");
    });
    check(moto, &watched.processes(), "plan").await;
    assert_eq!(clouds.granted(), ["job"; 2], "one token for each login");
    assert!(!preview.summary.contains("AWS_"), "{}", preview.summary);

    stage.merge(7, "both").outcome.check(0);
    let processes = watched.processes();
    assert!(processes.iter().any(|process| process.step == "apply"));
    check(moto, &processes, "apply").await;
    assert_eq!(clouds.granted(), ["job"; 2]);
    let receipt = stage.receipt("accounts/prod");
    assert_eq!(receipt["pullRequests"][0]["number"], 7);

    // A drift check reads: it has the identity of previews.
    stage.schedule().outcome.check(0);
    check(moto, &watched.processes(), "plan").await;
}

/// The store of the state and the secret stores are the job's: the login of a stack is for its providers and its
/// cluster alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_and_the_secret_stores_keep_the_identity_of_the_job() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let server = S3::shared();
    let bucket = server.bucket("login-state");
    let secret = format!("pay/{}", uuid::Uuid::new_v4().simple());
    let body = json!({"Name": secret, "SecretString": "of-the-job-s-account"});
    moto.call("secretsmanager", "secretsmanager.CreateSecret", body)
        .await;
    let stores = format!(
        "secrets: {{stores: {{sm: {{kind: aws, region: eu-central-1, address: '{}', allow: [{{stacks: 'appops/*/prod', paths: 'pay/*'}}]}}}}}}\n",
        moto.endpoint()
    );
    let mut stage = Stage::small(&(watched.config() + &rules() + &stores)).await;
    let text = stage.monorepo.read("konverge.yaml");
    let folder = format!("file://{}", stage.scratch.path().join("store").display());
    let url = format!(
        "s3://{bucket}/state?endpoint={}&allow_http=true",
        server.endpoint()
    );
    assert!(text.contains(&folder), "{text}");
    stage.monorepo.write("konverge.yaml", text.replace(&folder, &url));
    stage.monorepo.commit("The state in a bucket");
    stage.bucket = bucket;
    stage.env = clouds.job();
    stage.env.extend([
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL_STS", moto.endpoint().to_owned()),
    ]);
    let namespace = stage.cluster.namespace("login-state").await;
    let object =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pay", "namespace": namespace}});
    stage.reviewed(7, "one", |stage| {
        let mut wanted = object.clone();
        wanted["stringData"] = json!({"password": format!("ref+sm://{secret}")});
        let kept = json!({"id": "terraform:builtin:terraform_data:kept", "type": "Terraform", "attributes": {"input": "of-prod"}});
        let id = format!("v1:Secret:{namespace}:pay");
        let wanted = json!({"id": id, "type": "Kubernetes", "attributes": wanted});
        let program = format!("resources = [{wanted}, {kept}]\n");
        write_program(&stage.monorepo, "of-job/prod", &program);
    });
    stage.merge(7, "one").outcome.check(0);
    let live = Objects::of(stage.cluster).await.get(&object).await.unwrap();
    assert_eq!(live["data"]["password"], "b2YtdGhlLWpvYi1zLWFjY291bnQ=");
    let keys = stage.keys().await;
    let state = "state/stacks/of-job%2Fprod/state/";
    assert!(keys.iter().any(|key| key.starts_with(state)), "{keys:?}");
    let mut seen = 0;
    for process in watched.processes() {
        let Some(key) = process.variables.get("AWS_ACCESS_KEY_ID") else {
            continue;
        };
        let who = identity(moto, key).await;
        assert!(who.starts_with(&format!("arn:aws:sts::{PROD}:")), "{who}");
        seen += usize::from(process.step == "apply");
    }
    assert!(seen > 0, "it was applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_never_gets_the_role_of_applies() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let rules = "logins: {prod: {aws: {role: 'arn:aws:iam::111122223333:role/apply'}}}\nstacks: [{match: 'appops/*/prod', login: prod}]\n";
    let mut stage = Stage::small(&(watched.config() + rules)).await;
    stage.env = of_job(&clouds, moto);
    let (_, preview) = stage.reviewed(7, "one", |stage| keeps(stage, "unread/prod", "of-prod"));
    assert!(watched.processes().is_empty() && clouds.granted().is_empty());
    let (_, comment) = stage.comments().pop().unwrap();
    let says = "has no identity for previews (`aws.preview_role`)";
    let told = format!("{comment}\n{}", preview.outcome.stdout);
    assert!(told.contains(says), "{told}");

    // A comparison of Specs does not show what Terraform would do: the apply, with its role, asks for an approval.
    let stopped = stage.merge(7, "one");
    stopped.outcome.check(3);
    stage.approve(&stopped.digest()).outcome.check(0);
    assert_eq!(clouds.granted(), ["job"; 2]);
    watched.processes();
    let drift = stage.schedule();
    drift.outcome.check(1);
    assert!(
        drift.summary.contains("has no identity for previews"),
        "{}",
        drift.summary
    );
    assert!(watched.processes().is_empty() && clouds.granted().is_empty());
}

/// A login is a permission, and so is a list of identities: the comment shows how a merge would change them.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_login_or_a_list_is_a_change_of_permissions() {
    let mut stage = Stage::small(&rules()).await;
    stage.monorepo.checkout("main");
    keeps(&stage, "power/prod", "of-prod");
    stage.monorepo.commit("A stack");
    stage.reviewed(7, "power", |stage| {
        let list = "login: dev, provider_identities: {hashicorp/aws: [other-role]}";
        let changed = rules().replace("role/apply", "role/admin").replace(
            "'appops/*/prod', login: prod",
            &format!("'appops/*/prod', {list}"),
        );
        stage.configure(&changed);
    });
    let (_, comment) = stage.comments().pop().unwrap();
    for said in [
        "logins.prod.aws.role",
        "role/admin",
        "stacks[].login",
        "stacks[].provider_identities",
        "other-role",
        "power/prod",
    ] {
        assert!(comment.contains(said), "{said}: {comment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_stacks_with_ten_logins_ask_for_ten_tokens() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let logins = (0..10).map(|n| login(&format!("l{n}"), &format!("11112222333{n}"), ""));
    let logins: String = logins.collect();
    let rules = (0..10).map(|n| format!("- {{match: 'appops/p{n}/*', login: l{n}}}\n"));
    let rules: String = rules.collect();
    let config = format!("{}logins:\n{logins}stacks:\n{rules}", watched.config());
    let mut stage = Stage::small(&config).await;
    stage.env = of_job(&clouds, moto);
    stage.reviewed(7, "all", |stage| {
        for stack in 0..100 {
            let id = format!("p{}/s{stack}", stack % 10);
            write_program(&stage.monorepo, &id, "resources = []\n");
        }
    });
    assert_eq!(clouds.granted(), ["job"; 10]);
    stage.merge(7, "all").outcome.check(0);
    assert_eq!(clouds.granted(), ["job"; 10]);
}

/// A cloud refuses the job: nothing of the stack is asked or written, and the error has the subject and the identity.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_stops_its_stack_alone() {
    let token = "ya29.the-token-of-google";
    let (watched, clouds) = (Watched::new(), Clouds::start(token, HOUR).await);
    let account = |apply: &str, preview: &str| {
        format!("{{google: {{service_account: {apply}, preview_service_account: {preview}}}}}")
    };
    let other = account(
        "a@other.iam.gserviceaccount.com",
        "plan@other.iam.gserviceaccount.com",
    );
    let own = account("a@my-project.iam.gserviceaccount.com", Clouds::ACCOUNT);
    let rules = format!(
        "logins: {{bad: {other}, good: {own}}}\nstacks: [{{match: 'appops/*/prod', login: bad}}, {{match: 'appops/*/dev', login: good}}]\n"
    );
    let mut stage = Stage::small(&(watched.config() + &rules)).await;
    stage.env = clouds.job();
    stage.env.push(clouds.google_federation());
    stage.monorepo.checkout("main").branch("both");
    keeps(&stage, "refusal/prod", "of-prod");
    keeps(&stage, "refusal/dev", "of-dev");
    stage.monorepo.commit("both");
    let ran = stage.pull_request(7, "both", "opened");
    ran.outcome.check(1);
    let (_, comment) = stage.comments().pop().unwrap();
    for said in [
        "login `bad, for previews`",
        "plan@other.iam.gserviceaccount.com",
        Clouds::SUBJECT,
    ] {
        assert!(comment.contains(said), "{said}: {comment}");
    }
    let processes = watched.processes();
    let plans: Vec<_> = processes
        .iter()
        .filter(|process| process.step == "plan")
        .collect();
    let is_dev = |plan: &&Process| plan.module.contains("of-dev");
    assert!(!plans.is_empty() && plans.iter().all(is_dev), "{}", plans.len());
    let variables = plans[0].variables.iter();
    let names: Vec<_> = variables
        .filter(|(name, _)| name.starts_with("GOOGLE_"))
        .collect();
    assert_eq!(
        names,
        [(&"GOOGLE_OAUTH_ACCESS_TOKEN".to_owned(), &token.to_owned())]
    );
    assert!(!comment.contains(token), "{comment}");
}

/// The preview goes well, and the role of applies refuses the subject: nothing of the stack is planned or written, and
/// the error has the subject, the identity and the next step.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_refuses_the_subject_stops_the_apply_before_anything() {
    let (watched, clouds) = (Watched::new(), Clouds::start("ya29.google", HOUR).await);
    let refusing = "a@other.iam.gserviceaccount.com";
    let rules = format!(
        "logins: {{prod: {{google: {{service_account: {refusing}, preview_service_account: {}}}}}}}\nstacks: [{{match: 'appops/*/prod', login: prod}}]\n",
        Clouds::ACCOUNT
    );
    let mut stage = Stage::small(&(watched.config() + &rules)).await;
    stage.env = clouds.job();
    stage.env.push(clouds.google_federation());
    stage.reviewed(7, "kept", |stage| keeps(stage, "untrusted/prod", "of-prod"));
    let previewed = watched.processes();
    assert!(previewed.iter().any(|process| process.step == "plan"));
    let applied = stage.merge(7, "kept");
    assert_ne!(applied.outcome.code, Some(0), "{}", applied.outcome.stdout);
    let told = format!("{}{}", applied.outcome.stdout, applied.outcome.stderr);
    for said in [
        "login `prod`",
        refusing,
        "could not be obtained",
        Clouds::SUBJECT,
        "trust it",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let processes = watched.processes();
    let asked: Vec<_> = processes.iter().map(|process| &process.step).collect();
    assert!(asked.iter().all(|step| *step == "version"), "{asked:?}");
    let state = stage
        .states()
        .await
        .load(&"untrusted/prod".parse().unwrap())
        .await
        .unwrap();
    assert!(state.is_none(), "nothing was written");
    let tip = stage.monorepo.rev("main");
    assert_ne!(stage.status(&tip, "konverge/apply").as_deref(), Some("success"));
}

/// A rule names a login that does not exist: every job stops before anything is asked, and says which.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_does_not_exist_stops_the_job() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let config = watched.config() + &rules();
    let mut stage = Stage::small(&config).await;
    stage.env = of_job(&clouds, moto);
    let (_, preview) = stage.reviewed(7, "kept", |stage| keeps(stage, "absent/prod", "of-prod"));
    assert!(preview.summary.contains("absent/prod"), "{}", preview.summary);
    watched.processes();
    clouds.granted();
    // The default branch loses the login, with the rule still there.
    let push = stage.press_merge(7, "kept");
    stage.monorepo.checkout("main");
    stage.configure(&config.replace("login: prod}", "login: prd}"));
    let after = stage.monorepo.commit("A typing error");
    for ran in [stage.push(&push.1, &after), stage.schedule()] {
        assert_ne!(ran.outcome.code, Some(0), "{}", ran.outcome.stdout);
        let said = &ran.outcome.stderr;
        for word in ["names login `prd`", "konverge.yaml", "hint: "] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    let asked: Vec<_> = watched
        .processes()
        .into_iter()
        .map(|process| process.step)
        .collect();
    assert!(asked.iter().all(|step| step == "version"), "{asked:?}");
    assert!(clouds.granted().is_empty(), "nobody was asked");
}
