//! The identities of other teams that a Spec may not choose, in every spelling, and those that a rule lists.

use serde_json::{Value, json};

use super::logins::{HOUR, Watched, of_job, rules};
use crate::support::{ci_stage::Stage, clouds::Clouds, moto::Moto, terraform, tiny_monorepo::write_program};

/// The other team's role, in thirty spellings, and the same of other clouds: the provider and its configuration.
fn spellings() -> Vec<(&'static str, Value)> {
    let role = "arn:aws:iam::444455556666:role/apply";
    let encoded = "arn%3Aaws%3Aiam%3A%3A444455556666%3Arole%2Fapply";
    let web = "assume_role_with_web_identity";
    let at_aws = [
        json!({"assume_role": {"role_arn": role}}),
        json!({"assume_role": [{"role_arn": role}]}),
        json!({"assume_role": [{"role_arn": role, "session_name": "x", "external_id": "y"}]}),
        json!({"assume_role": [[{"role_arn": role}]]}),
        json!({"assume_role": {"x": {"y": {"role_arn": role}}}}),
        json!({web: {"role_arn": role, "web_identity_token_file": "/t"}}),
        json!({web: [{"role_arn": role, "web_identity_token": "t"}]}),
        json!({"assume_role": {"role_arn": encoded}}),
        json!({"assume_role": {"role_arn": format!("{role} ")}}),
        json!({"assume_role": {"role_arn": format!("\t{role}")}}),
        json!({"assume_role": {"role_arn": role.to_uppercase()}}),
        json!({"assume_role": {"ROLE_ARN": role}}),
        json!({"Assume_Role": {"role_arn": role}}),
        json!({"assume-role": {"role-arn": role}}),
        json!({"role_arn": role}),
        json!({"roleArn": role}),
        json!({"role": role}),
        json!({"profile": "prod"}),
        json!({"profile": "PROD"}),
        json!({"shared_config_files": ["/home/job/.aws/config"]}),
        json!({"shared_credentials_files": ["/home/job/.aws/credentials"]}),
        json!({"shared_credentials_file": "/home/job/.aws/credentials"}),
        json!({"access_key": "AKIDEXAMPLE", "secret_key": "x"}),
        json!({"token": "x"}),
        json!({"assume_role": "${file(\"/etc/passwd\")}"}),
        json!({"assume_role": {"role_arn": "${var.role}"}}),
        json!({"assume_role": {"role_arn": "arn:aws:iam::${4}44455556666:role/apply"}}),
        json!({"custom_ca_bundle": "/ca", "assume_role": {"role_arn": role}}),
        json!({"region": role}),
        json!({"default_tags": {"tags": {"a": "b"}}, "assume_role": {"policy": "{}", "role_arn": role}}),
    ];
    let elsewhere = [
        (
            "google",
            json!({"impersonate_service_account": "apply@prod.iam.gserviceaccount.com"}),
        ),
        (
            "google",
            json!({"impersonate_service_account_delegates": ["apply@prod.iam.gserviceaccount.com"]}),
        ),
        ("azurerm", json!({"client_id": Clouds::APPLICATION})),
        ("azurerm", json!({"client_id": "ref+db://pay/azure#/id"})),
        (
            "azurerm",
            json!({"client_id": "ref+db://pay/azure#/id", "client_secret": "ref+db://pay/azure#/key"}),
        ),
        (
            "aws",
            json!({"assume_role": {"role_arn": "ref+db://pay/aws#/role"}}),
        ),
        ("aws", json!({"profile": "ref+db://pay/aws#/profile"})),
        (
            "google",
            json!({"impersonate_service_account": "ref+db://pay/google#/account"}),
        ),
        ("azurerm", json!({"auxiliary_tenant_ids": [Clouds::TENANT]})),
        ("alicloud", json!({"assume_role": {"role_arn": Clouds::RAM_ROLE}})),
    ];
    assert_eq!(at_aws.len(), 30);
    at_aws
        .into_iter()
        .map(|meta| ("aws", meta))
        .chain(elsewhere)
        .collect()
}

fn namespace(provider: &str) -> &'static str {
    match provider {
        "alicloud" => "aliyun",
        _ => "hashicorp",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_names_no_other_team_s_identity_in_any_spelling() {
    let (watched, moto, clouds) = (Watched::new(), Moto::shared(), Clouds::start("", HOUR).await);
    let sources = ["aws", "google", "azurerm", "alicloud"]
        .map(|name| format!("{{source: {}/{name}, version: 1.0.0}}", namespace(name)));
    let config = format!(
        "terraform: {{binary: '{}', providers: [{}]}}\n{}",
        watched.binary().display(),
        sources.join(", "),
        rules()
    );
    let mut stage = Stage::small(&config).await;
    stage.env = of_job(&clouds, moto);
    let all = spellings();
    stage.monorepo.checkout("main").branch("spelled");
    for (at, (name, meta)) in all.iter().enumerate() {
        let namespace = namespace(name);
        let resource = json!({
            "id": format!("{namespace}:{name}:{name}_thing:t{at}"), "type": "Terraform", "attributes": {"name": "x"},
            "extensions": {"provider": format!("registry.terraform.io/{namespace}/{name}/1.0.0"), "providerMeta": meta},
        });
        // The compiler must not read `${…}` itself.
        let text = json!([resource]).to_string().replace('$', "\\u0024");
        let program = format!("import json\nresources = json.decode(r'''{text}''')\n");
        // The rules give these stacks a login: somebody would be asked.
        write_program(&stage.monorepo, &format!("spelled{at}/prod"), &program);
    }
    stage.monorepo.commit("spelled");
    let refused = |text: &str, at: usize| {
        let is_it =
            |line: &str| line.contains(&format!("_thing:t{at}`")) && line.contains("a Spec may not choose");
        text.lines().any(is_it)
    };
    let job = stage.env.clone();
    // With the login of previews, and without a comparison with live infrastructure.
    for (event, live) in [("opened", None), ("synchronize", Some("never"))] {
        stage
            .env
            .extend(live.map(|live| ("KONVERGE_LIVE", live.to_owned())));
        let preview = stage.pull_request(7, "spelled", event);
        preview.outcome.check(1);
        let told = &preview.outcome.stdout;
        for (at, (_, meta)) in all.iter().enumerate() {
            assert!(
                refused(told, at),
                "{event} {meta}: {told}{}",
                preview.outcome.stderr
            );
        }
    }
    stage.env = job;
    let applied = stage.merge(7, "spelled");
    assert_ne!(applied.outcome.code, Some(0), "{}", applied.outcome.stdout);
    for (at, (_, meta)) in all.iter().enumerate() {
        let told = &applied.outcome.stdout;
        // An apply asks for the references first, and this one has no store.
        let lacks_store =
            |line: &str| line.contains(&format!("_thing:t{at}:")) && line.contains("secret store");
        let is_stopped = if meta.to_string().contains("ref+") {
            told.lines().any(lacks_store)
        } else {
            refused(told, at)
        };
        assert!(is_stopped, "{meta}: {told}{}", applied.outcome.stderr);
    }
    let processes = watched.processes();
    let asked: Vec<_> = processes.iter().map(|process| &process.step).collect();
    assert!(asked.iter().all(|step| *step == "version"), "{asked:?}");
    assert!(clouds.granted().is_empty(), "nobody was asked");
}

/// What a rule lists is listed for its stacks alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_lists_identities_for_its_own_stacks() {
    let role = "arn:aws:iam::444455556666:role/apply";
    let config = format!(
        "terraform: {{binary: '{}', mirror: '{}', providers: [{{source: hashicorp/aws, version: 1.0.0}}]}}\nstacks: [{{match: 'appops/listed/*', provider_identities: {{hashicorp/aws: ['{role}']}}}}]\n",
        terraform::binary().display(),
        terraform::mirror().display(),
    );
    let mut stage = Stage::small(&config).await;
    stage.monorepo.checkout("main").branch("both");
    for project in ["listed", "other"] {
        let resource = format!(
            "{{id = \"hashicorp:aws:aws_thing:{project}\", type = \"Terraform\", attributes = {{name = \"x\"}}, extensions = {{provider = \"registry.terraform.io/hashicorp/aws/1.0.0\", providerMeta = {{assume_role = [{{role_arn = \"{role}\"}}]}}}}}}"
        );
        write_program(
            &stage.monorepo,
            &format!("{project}/team"),
            &format!("resources = [{resource}]\n"),
        );
    }
    stage.monorepo.commit("both");
    let preview = stage.pull_request(7, "both", "opened");
    preview.outcome.check(1);
    let told = preview.outcome.stdout;
    let refused = |project: &str| {
        let mut lines = told.lines();
        lines.any(|line| {
            line.contains(&format!("aws_thing:{project}`")) && line.contains("a Spec may not choose")
        })
    };
    assert!(refused("other") && !refused("listed"), "{told}");
    assert!(
        told.contains("the provider registry.terraform.io/hashicorp/aws 1.0.0 was not found"),
        "{told}"
    );
}
