//! Secrets of AWS, on moto, which checks the signature and the policy of each request: a preview reads versions with a
//! role that may not read values, an apply reads values.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, response::IntoResponse};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    moto::{Moto, REGION},
    objects::Objects,
    process::Outcome,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
    vault::FakeVault,
};

/// In every value.
const CANARY: &str = "c4nary-Tr5m!Wq";

/// AWS with the roles `preview` and `apply`, and a job whose OIDC token they trust.
struct Aws {
    shop: Shop,
    moto: Arc<Moto>,
    /// Gives the job its OIDC token.
    github: FakeVault,
    sts: String,
    /// The roles that were asked for.
    roles: Arc<Mutex<Vec<String>>>,
    cluster: &'static Cluster,
    namespace: String,
}

impl Aws {
    async fn new(subject: &str) -> Self {
        let (moto, roles) = (Arc::new(Moto::start()), Arc::default());
        let cluster = Cluster::shared();
        let namespace = cluster.namespace(subject).await;
        let versions = ["secretsmanager:DescribeSecret", "ssm:DescribeParameters"];
        let values = ["secretsmanager:GetSecretValue", "ssm:GetParameter"];
        for (role, actions) in [
            ("preview", versions.to_vec()),
            ("apply", [versions, values].concat()),
        ] {
            let trust = json!({"Version": "2012-10-17", "Statement": []}).to_string();
            let version = ("Version", "2010-05-08");
            let name = ("RoleName", role);
            let create = [
                ("Action", "CreateRole"),
                version,
                name,
                ("AssumeRolePolicyDocument", &trust),
            ];
            moto.form("iam", &create).await;
            let statement = json!({"Effect": "Allow", "Action": actions, "Resource": "*"});
            let policy = json!({"Version": "2012-10-17", "Statement": [statement]}).to_string();
            let put = [
                ("Action", "PutRolePolicy"),
                version,
                name,
                ("PolicyName", "secrets"),
                ("PolicyDocument", &policy),
            ];
            moto.form("iam", &put).await;
        }
        let sts = token_service(Arc::clone(&moto), Arc::clone(&roles)).await;
        let aws = Self {
            shop: Shop::new("version: 1\n", &[("KUBECONFIG", cluster.kubeconfig().as_path())]),
            moto,
            github: FakeVault::start().await,
            sts,
            roles,
            cluster,
            namespace,
        };
        aws.configure(
            "auth: {method: jwt, role: 'arn:aws:iam::123456789012:role/apply', preview_role: 'arn:aws:iam::123456789012:role/preview'}",
        );
        aws
    }

    fn configure(&self, auth: &str) {
        let store = |name: &str, kind: &str, paths: &str| {
            format!(
                "    {name}: {{kind: {kind}, region: {REGION}, address: '{}', {auth}, allow: [{{stacks: 'apps/shop/*', paths: '{paths}'}}]}}\n",
                self.moto.endpoint()
            )
        };
        let stores = [store("sm", "aws", "pay/*"), store("params", "ssm", "/pay/*")].concat();
        let config = format!("clusters: {{test: {{}}}}\nsecrets:\n  stores:\n{stores}");
        self.shop.monorepo.write("konverge.yaml", config).commit("config");
    }

    async fn create(&self, name: &str, text: &str) -> String {
        let body = json!({"Name": name, "SecretString": text, "ClientRequestToken": uuid::Uuid::new_v4().to_string()});
        let made = self
            .moto
            .call("secretsmanager", "secretsmanager.CreateSecret", body)
            .await;
        made["VersionId"].as_str().unwrap().to_owned()
    }

    async fn put(&self, name: &str, text: &str) -> String {
        let body = json!({"SecretId": name, "SecretString": text, "ClientRequestToken": uuid::Uuid::new_v4().to_string()});
        let put = self
            .moto
            .call("secretsmanager", "secretsmanager.PutSecretValue", body)
            .await;
        put["VersionId"].as_str().unwrap().to_owned()
    }

    async fn put_parameter(&self, name: &str, value: &str) {
        let body = json!({"Name": name, "Value": value, "Type": "SecureString", "Overwrite": true});
        self.moto.call("ssm", "AmazonSSM.PutParameter", body).await;
    }

    fn wants(&self, texts: Value) -> Value {
        let metadata = json!({"name": "pay", "namespace": self.namespace});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts});
        self.shop.wants("prod", &[resource(&object)]);
        object
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let run = self.shop.konverge(arguments).env("KONVERGE_LOG", "trace");
        let job = self.github.job().into_iter();
        let run = job.fold(run, |run, (name, value)| run.env(name, value));
        run.env("AWS_ENDPOINT_URL_STS", &self.sts).run()
    }

    fn apply(&self) -> Outcome {
        self.run(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
    }

    fn preview(&self) -> Outcome {
        self.run(&["preview", "--all", "--live", "required", "--output", "json"])
    }

    fn roles(&self) -> Vec<String> {
        std::mem::take(&mut self.roles.lock().unwrap())
    }

    async fn value(&self, object: &Value, key: &str) -> Option<String> {
        use base64::Engine as _;
        let live = Objects::of(self.cluster).await.get(object).await?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(live["data"][key].as_str()?)
            .unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    fn holds_no_value(&self, outcome: &Outcome) {
        let state = self.shop.monorepo.path().join(".git/test-state");
        let state = if state.is_dir() {
            walk(&state)
        } else {
            String::new()
        };
        for text in [&outcome.stdout, &outcome.stderr, &state] {
            assert!(!text.contains(CANARY), "{text}");
        }
    }
}

type TokenService = (Arc<Moto>, Arc<Mutex<Vec<String>>>, Arc<tokio::sync::Mutex<()>>);

/// The token service: moto's own, which does not look at the OIDC token, behind a check of it.
async fn token_service(moto: Arc<Moto>, roles: Arc<Mutex<Vec<String>>>) -> String {
    async fn answer(
        State((moto, roles, switch)): State<TokenService>,
        body: Bytes,
    ) -> axum::response::Response {
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(&body).into_owned().collect();
        let field = |name: &str| {
            let found = fields.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let role = field("RoleArn").rsplit('/').next().unwrap_or_default().to_owned();
        if field("WebIdentityToken").split('.').count() != 3 || !["preview", "apply"].contains(&role.as_str())
        {
            let text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>";
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        roles.lock().unwrap().push(role);
        let fields: Vec<_> = fields
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        // Two stores log in at once, and the switch is one for all.
        let _alone = switch.lock().await;
        moto.check_requests(false).await;
        let answer = moto.form("sts", &fields).await;
        moto.check_requests(true).await;
        answer.into_response()
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new()
        .fallback(answer)
        .with_state((moto, roles, Arc::default()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

fn changes(outcome: &Outcome) -> Vec<Value> {
    let stack = outcome.json()["stacks"][0].take();
    assert!(stack["error"].is_null(), "{stack}");
    let resources = stack["resources"].as_array().unwrap().iter();
    resources
        .flat_map(|resource| resource["changes"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_reads_versions_of_aws_and_an_apply_values() {
    let aws = Aws::new("aws").await;
    let first = aws
        .create("pay/db", &json!({"password": format!("{CANARY}-1")}).to_string())
        .await;
    aws.put_parameter("/pay/token", &format!("{CANARY}-token")).await;
    let pay = aws.wants(json!({
        "password": "ref+awssecrets://pay/db#/password",
        "token": "ref+awsssm:///pay/token",
    }));
    aws.moto.check_requests(true).await;

    let made = changes(&aws.preview().expect(0));
    let data = &made[0]["to"]["data"];
    assert_eq!(
        data["password"],
        json!({"$secret": {"ref": "sm:pay/db#/password", "version": first}})
    );
    assert_eq!(
        data["token"],
        json!({"$secret": {"ref": "params:/pay/token", "version": "1"}})
    );
    assert_eq!(aws.roles(), ["preview", "preview"], "a login for each store");

    let applied = aws.apply().expect(0);
    aws.holds_no_value(&applied);
    assert_eq!(aws.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    assert_eq!(aws.value(&pay, "token").await, Some(format!("{CANARY}-token")));
    assert!(aws.roles().iter().all(|role| role == "apply"));
    assert_eq!(changes(&aws.preview().expect(0)), [] as [Value; 0]);

    // Both moved.
    aws.moto.check_requests(false).await;
    let second = aws
        .put("pay/db", &json!({"password": format!("{CANARY}-2")}).to_string())
        .await;
    aws.put_parameter("/pay/token", &format!("{CANARY}-token-2"))
        .await;
    aws.moto.check_requests(true).await;
    let moved = changes(&aws.preview().expect(0));
    assert!(
        moved.len() == 2 && moved.iter().all(|change| change["origin"] == "rotation"),
        "{moved:?}"
    );
    let to: Vec<_> = moved
        .iter()
        .map(|change| change["to"]["$secret"]["version"].as_str().unwrap())
        .collect();
    assert_eq!(to, [second.as_str(), "2"]);
    aws.holds_no_value(&aws.apply().expect(0));
    assert_eq!(aws.value(&pay, "password").await, Some(format!("{CANARY}-2")));
    assert_eq!(aws.value(&pay, "token").await, Some(format!("{CANARY}-token-2")));

    // Versions that the author asks for.
    aws.wants(json!({
        "password": format!("ref+sm://pay/db?version={first}#/password"),
        "token": "ref+params:///pay/token?version=1",
    }));
    aws.apply().expect(0);
    assert_eq!(aws.value(&pay, "password").await, Some(format!("{CANARY}-1")));
    assert_eq!(aws.value(&pay, "token").await, Some(format!("{CANARY}-token")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_aws_denies_or_lacks_stops_the_stack_with_its_words() {
    let aws = Aws::new("aws-denies").await;
    aws.create("pay/db", &json!({"password": CANARY}).to_string())
        .await;
    aws.put_parameter("/pay/token", CANARY).await;
    aws.moto.check_requests(true).await;
    let refused = |why: &str| {
        let outcome = aws.apply().expect(1);
        let error = outcome.json()["stacks"][0]["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
        assert!(!error["hints"].as_array().unwrap().is_empty(), "{error}");
        aws.holds_no_value(&outcome);
    };
    for (reference, why) in [
        (
            "ref+awssecrets://pay/none#/x",
            "secret store `sm`: `pay/none` is not there",
        ),
        ("ref+awssecrets://pay/db#/none", "has no key `none`"),
        (
            "ref+awsssm:///pay/none",
            "secret store `params`: `/pay/none` is not there",
        ),
        ("ref+awsssm:///pay/token#/x", "is not a JSON document"),
        ("ref+awssecrets://other/db", "may not read `other/db`"),
    ] {
        aws.wants(json!({"a": reference}));
        refused(why);
    }
    let pay = aws.wants(json!({"a": "ref+awssecrets://pay/db#/password"}));
    // The role of previews reads no value.
    aws.configure("auth: {method: jwt, role: 'arn:aws:iam::123456789012:role/preview'}");
    refused("`pay/db` was denied (HTTP 403)");
    aws.configure("auth: {method: jwt, role: 'arn:aws:iam::123456789012:role/admin'}");
    refused(
        "was denied: the keys of the role `arn:aws:iam::123456789012:role/admin` could not be obtained: 403 Forbidden: Not authorized",
    );
    // Without `auth`, the variables of the job count.
    aws.configure("mount: null");
    refused("the environment holds no AWS identity: set AWS_ROLE_ARN in a job with `id-token: write`");
    let wrong = aws
        .shop
        .konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"])
        .env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        .env(
            "AWS_SECRET_ACCESS_KEY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        )
        .run()
        .expect(1);
    assert!(wrong.stdout.contains("was denied (HTTP 403)"), "{}", wrong.stdout);
    assert_eq!(aws.value(&pay, "a").await, None, "nothing was written");
}
