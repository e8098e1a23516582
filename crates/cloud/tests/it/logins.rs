//! The logins of a stack and of an EKS cluster, at clouds that the tests play and at moto.

use std::{collections::BTreeMap, process::Command};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use konverge_cloud::{AlibabaLogin, AzureLogin, CloudEnvironment, EksLogin, GoogleLogin, StackIdentity};

use crate::support::{clouds::Clouds, moto::Moto};

const HOUR: u64 = 3600;
const GKE_SCOPES: &str =
    "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email";
const AKS_SCOPE: &str = "6dae42f8-4368-4678-94ff-3960e28e3630/.default";

/// A stack's login at three clouds: what its providers get, and that its clusters ask for nothing again.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_of_a_stack_asks_each_cloud_once() {
    let clouds = Clouds::start("the-short-lived-token", HOUR).await;
    let mut variables: BTreeMap<String, String> = clouds
        .job()
        .into_iter()
        .chain(clouds.azure())
        .chain([clouds.google_federation()])
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    // What the job has besides is not used.
    variables.insert("AZURE_CLIENT_SECRET".to_owned(), "another".to_owned());
    variables.insert("ALIBABA_CLOUD_STS_ENDPOINT".to_owned(), clouds.url.clone());
    variables.insert("ALIBABA_CLOUD_ACCESS_KEY_ID".to_owned(), "of-the-job".to_owned());
    variables.insert(
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET".to_owned(),
        "of-the-job".to_owned(),
    );
    let environment = CloudEnvironment::new(variables);
    let identity = StackIdentity {
        google: Some(GoogleLogin::of_login(
            Clouds::ACCOUNT.to_owned(),
            None,
            environment.clone(),
        )),
        azure: Some(AzureLogin::of_login(
            Clouds::APPLICATION,
            None,
            environment.clone(),
        )),
        alibaba: Some(AlibabaLogin::of_login(
            Clouds::RAM_ROLE,
            Some(Clouds::RAM_PROVIDER),
            environment.clone(),
        )),
        ..StackIdentity::default()
    };
    let expected = [
        ("GOOGLE_OAUTH_ACCESS_TOKEN", "the-short-lived-token"),
        ("ARM_CLIENT_ID", Clouds::APPLICATION),
        ("ARM_TENANT_ID", Clouds::TENANT),
        ("ARM_OIDC_TOKEN", "job-token-for:api://AzureADTokenExchange"),
        ("ARM_USE_OIDC", "true"),
        ("ALICLOUD_ACCESS_KEY", "STS.id"),
        ("ALICLOUD_SECRET_KEY", "ram-secret"),
        ("ALICLOUD_SECURITY_TOKEN", "the-short-lived-token"),
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "STS.id"),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ram-secret"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", "the-short-lived-token"),
    ];
    for _ in 0..3 {
        let (given, lifetime) = identity.provider_variables().await.unwrap();
        assert!(
            lifetime.is_some_and(|left| left.as_secs() <= 3600),
            "{lifetime:?}"
        );
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        assert_eq!(given, expected);
    }
    let account = format!("account {GKE_SCOPES}");
    let entra = "entra https://management.azure.com/.default";
    assert_eq!(
        clouds.granted(),
        ["job", "trade", &account, "job", entra, "job", "ram"],
        "each cloud once"
    );
    let (google, azure) = (identity.google.unwrap(), identity.azure.unwrap());
    assert_eq!(google.gke_token().await.unwrap().bearer, "the-short-lived-token");
    assert_eq!(
        azure.aks_token(None).await.unwrap().bearer,
        "the-short-lived-token"
    );
    assert_eq!(
        clouds.granted(),
        [format!("entra {AKS_SCOPE}")],
        "the token of the job is the login's"
    );
    // Another account is refused, and not asked for again.
    let stranger = GoogleLogin::of_login("x@other.iam.gserviceaccount.com".to_owned(), None, environment);
    for _ in 0..2 {
        stranger.gke_token().await.unwrap_err();
    }
    assert_eq!(clouds.granted(), ["job", "trade"]);
}

/// The URL that a token stands for.
fn signed_url(token: &str) -> url::Url {
    let encoded = token.strip_prefix("k8s-aws-v1.").unwrap();
    let url = URL_SAFE_NO_PAD.decode(encoded).unwrap();
    String::from_utf8(url).unwrap().parse().unwrap()
}

/// The URL that botocore signs for the same request at the same time.
fn signed_by_botocore(date: &str, keys: [&str; 3]) -> url::Url {
    const SCRIPT: &str = "
import sys, datetime, botocore.auth, botocore.awsrequest, botocore.credentials
date, access, secret, session = sys.argv[1:]
now = datetime.datetime.strptime(date, '%Y%m%dT%H%M%SZ')
botocore.auth.get_current_datetime = lambda remove_tzinfo=True: now
url = 'https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15'
request = botocore.awsrequest.AWSRequest('GET', url, headers={'x-k8s-aws-id': 'prod'})
keys = botocore.credentials.Credentials(access, secret, session or None)
botocore.auth.SigV4QueryAuth(keys, 'sts', 'eu-central-1', expires=60).add_auth(request)
print(request.url)
";
    let python = crate::support::cache().join("moto/bin/python3");
    let python = crate::support::installed("moto", python);
    let output = Command::new(python)
        .args(["-c", SCRIPT, date])
        .args(keys)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .expect(&said)
}

fn query(url: &url::Url) -> BTreeMap<String, String> {
    url.query_pairs().into_owned().collect()
}

fn eks(variables: &[(&str, &str)]) -> EksLogin {
    let owned = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    EksLogin::new("prod".to_owned(), None, CloudEnvironment::new(owned.collect()))
}

#[tokio::test]
async fn a_token_of_eks_is_what_botocore_signs() {
    for session in ["", "a/session+token=="] {
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let token = eks(&[
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_SESSION_TOKEN", session),
            ("AWS_REGION", "eu-central-1"),
        ]);
        let url = signed_url(&token.token().await.unwrap().bearer);
        let ours = query(&url);
        let theirs = signed_by_botocore(&ours["X-Amz-Date"], ["AKIDEXAMPLE", secret, session]);
        assert_eq!(ours, query(&theirs));
        assert_eq!(url.host_str(), theirs.host_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_s_role_is_who_an_eks_cluster_sees() {
    let (moto, clouds) = (Moto::shared(), Clouds::start("", HOUR).await);
    let [(request_url, of_url), (request_token, of_token)] = <[_; 2]>::try_from(clouds.job()).unwrap();
    let login = eks(&[
        ("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/konverge-preview"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ENDPOINT_URL_STS", moto.endpoint()),
        (request_url, &of_url),
        (request_token, &of_token),
    ]);
    assert!(login.is_by_job());
    let token = login.token().await.unwrap();
    assert!(token.lifetime.as_secs() <= 15 * 60, "{token:?}");
    // As the cluster does it, but for the host.
    let url = signed_url(&token.bearer);
    let at_moto = format!("{}/?{}", moto.endpoint(), url.query().unwrap());
    let request = reqwest::Client::new().get(at_moto).header("x-k8s-aws-id", "prod");
    // By this header moto finds the service and the key, and by the key the role.
    let credential = &query(&url)["X-Amz-Credential"];
    let proof = format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0");
    let request = request.header("authorization", proof);
    let seen = request.send().await.unwrap().text().await.unwrap();
    assert!(
        seen.contains("arn:aws:sts::111122223333:assumed-role/konverge-preview/konverge"),
        "{seen}"
    );
}
