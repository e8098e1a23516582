use super::*;
use crate::HashKey;

#[test]
fn what_a_run_logs_in_with_is_its_own() {
    for name in [
        "KONVERGE_AGE_IDENTITY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "GITEA_TOKEN",
        "GITLAB_TOKEN",
        "KONVERGE_GITLAB_TOKEN",
        "CI_JOB_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "ACTIONS_RUNTIME_TOKEN",
        "INPUT_KUBECONFIG",
        "VAULT_SECRET_ID",
        "SOPS_AGE_KEY",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        "AZURE_CLIENT_SECRET",
        "TF_TOKEN_app_terraform_io",
        "KUBECONFIG",
        "HTTPS_PROXY",
        "PGUSER",
        "PGPASSWORD",
        "MYSQL_PWD",
        "OSS_ACCESS_KEY_SECRET",
    ] {
        assert!(is_of_run(name), "{name}");
    }
    for name in ["PAY_PASSWORD", "PG_PASSWORD", "MYSQL_PASSWORD", "GITLAB_PASSWORD"] {
        assert!(!is_of_run(name), "{name}");
    }
}

#[test]
fn what_is_passed_on_is_masked() {
    let secret = [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "GOOGLE_CREDENTIALS",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        "GCLOUD_KEYFILE_JSON",
        "CLOUDSDK_AUTH_ACCESS_TOKEN",
        "ARM_CLIENT_SECRET",
        "ARM_ACCESS_KEY",
        "ARM_SAS_TOKEN",
        "ARM_OIDC_TOKEN",
        "ARM_CLIENT_CERTIFICATE",
        "ARM_CLIENT_CERTIFICATE_PASSWORD",
        "AZURE_STORAGE_CONNECTION_STRING",
        "ALICLOUD_SECRET_KEY",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
        "TENCENTCLOUD_SECRET_ID",
        "TENCENTCLOUD_SECRET_KEY",
        "HW_ACCESS_KEY",
        "HW_SECRET_KEY",
        "HUAWEICLOUD_SDK_SK_TOKEN",
        "OCI_CLI_KEY_CONTENT",
        "DIGITALOCEAN_ACCESS_TOKEN",
        "CLOUDFLARE_API_TOKEN",
        "CLOUDFLARE_API_KEY",
        "HCLOUD_TOKEN",
        "VAULT_TOKEN",
        "TF_TOKEN_app_terraform_io",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    ];
    let others = [
        "GITHUB_TOKEN",
        "INPUT_GITHUB-TOKEN",
        "KONVERGE_OCI_PASSWORD",
        "KONVERGE_HTTP_TOKEN",
        "KONVERGE_HTTP_PASSWORD",
        "KONVERGE_REVIEW_KEY",
        "KONVERGE_AGE_IDENTITY",
        "PGPASSWORD",
        "MYSQL_PWD",
        "VAULT_SECRET_ID",
        "OSS_ACCESS_KEY_SECRET",
        "MY_DEPLOY_TOKEN",
    ];
    let settings = [
        "PATH",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "ARM_TENANT_ID",
        "ARM_CLIENT_ID",
        "GOOGLE_PROJECT",
        "VAULT_ADDR",
        "HOME",
    ];
    let value = |at: usize| format!("v4lue-{at:03}-x");
    let all = secret.into_iter().chain(others).chain(settings);
    let environment: BTreeMap<String, String> = all
        .enumerate()
        .map(|(at, name)| (name.to_owned(), value(at)))
        .collect();
    let secrets = Secrets::new(HashKey::derive("k"));
    learn_environment(&secrets, &environment);
    for (name, value) in &environment {
        let is_setting = settings.contains(&name.as_str());
        let masked = if name.ends_with("_ID") && name != "VAULT_SECRET_ID" {
            secrets.mask(value)
        } else {
            secrets.mask_finished(value)
        };
        assert_eq!(masked == *value, is_setting, "{name}");
    }
    for name in secret {
        assert!(is_passed(name), "{name}");
    }
    for name in others {
        assert!(!is_passed(name), "{name}");
    }
}

#[test]
fn a_document_a_proxy_and_a_header_of_git_hold_secrets() {
    let account = serde_json::json!({"type": "service_account", "project_id": "shop-project-1234",
        "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEabcdefghijkl\n-----END PRIVATE KEY-----\n",
        "older": [{"private_key": "QWErtzuiopasdfgh"}]});
    let environment = [
        ("GOOGLE_CREDENTIALS", account.to_string()),
        ("HTTPS_PROXY", "http://me:pr0xy-pass@proxy:3128".to_owned()),
        (
            "GIT_CONFIG_VALUE_0",
            "AUTHORIZATION: basic eC1hY2Nlc3M6dG9rZW4=".to_owned(),
        ),
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "/run/credentials.json".to_owned(),
        ),
        ("SOME_TOKEN", "true".to_owned()),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
    let secrets = Secrets::new(HashKey::derive("k"));
    learn_environment(&secrets, &environment);
    for (text, shown) in [
        ("MIIEabcdefghijkl", "***"),
        ("QWErtzuiopasdfgh", "***"),
        ("shop-project-1234", "shop-project-1234"),
        ("http://me:pr0xy-pass@proxy:3128", "http://me:***@proxy:3128"),
        ("basic eC1hY2Nlc3M6dG9rZW4=", "basic ***"),
        ("/run/credentials.json is true", "/run/credentials.json is true"),
    ] {
        assert_eq!(secrets.mask_finished(text), shown);
    }
}

/// A text as it is finished in an environment with one variable.
fn finished(name: &str, value: &str, text: &str) -> String {
    let secrets = Secrets::new(HashKey::derive("k"));
    learn_environment(&secrets, &BTreeMap::from([(name.to_owned(), value.to_owned())]));
    secrets.mask_finished(text)
}

#[test]
fn a_word_is_a_credential_only_in_a_variable_of_ours_or_one_that_is_passed_on() {
    for (name, shown) in [
        ("KONVERGE_HTTP_PASSWORD", "***"),
        ("INPUT_GITHUB-TOKEN", "***"),
        ("PGPASSWORD", "***"),
        ("VAULT_TOKEN", "***"),
        ("AWS_SESSION_TOKEN", "***"),
        ("MY_TOKEN", "postgres"),
        ("AWS_ACCESS_KEY_ID", "postgres"),
        ("AWS_REGION", "postgres"),
    ] {
        assert_eq!(finished(name, "postgres", "postgres"), shown, "{name}");
    }
}

#[test]
fn only_the_header_in_a_setting_of_git_holds_a_credential() {
    let header = "Authorization: basic Zm9vYmFyOmJhejk5";
    assert_eq!(finished("GIT_CONFIG_VALUE_1", header, "Zm9vYmFyOmJhejk5"), "***");
    assert_eq!(
        finished("SOME_HEADER", header, "Zm9vYmFyOmJhejk5"),
        "Zm9vYmFyOmJhejk5"
    );
    assert_eq!(
        finished(
            "GIT_CONFIG_VALUE_1",
            "example.com/shop-9x8y",
            "example.com/shop-9x8y"
        ),
        "example.com/shop-9x8y"
    );
}

#[test]
fn one_line_that_starts_with_a_slash_is_a_path() {
    assert_eq!(
        finished("VAULT_TOKEN", "/run/t0ken-file", "/run/t0ken-file"),
        "/run/t0ken-file"
    );
    let lines = "/first\nthe-second-line-of-it";
    assert_eq!(finished("VAULT_TOKEN", lines, "the-second-line-of-it"), "***");
}

#[test]
fn a_rule_is_a_whole_name_or_a_prefix() {
    for (name, passed) in [
        ("PATH", true),
        ("PATHS", false),
        ("VAULT_ADDR", true),
        ("VAULT_ADDRESS", false),
        ("AWS_ANYTHING", true),
        ("MY_AWS_ANYTHING", false),
        ("TF_TOKEN_example_com", true),
    ] {
        assert_eq!(is_passed(name), passed, "{name}");
    }
    for start in OF_RUN {
        assert!(
            is_of_run(&format!("{start}X")) && !is_of_run(&format!("X{start}")),
            "{start}"
        );
    }
}
