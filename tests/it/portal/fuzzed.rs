//! The API under what its OpenAPI document allows and forbids, by a tool that knows nothing of us.

use konverge_base::model::apply_result::StackResult;
use serde_json::json;

use super::{
    recorded::{RecordedStacks, config_map},
    visitor::{KEY, Served},
};
use crate::support::{executable, openid::OpenIdProvider, process::Konverge};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-all"]
async fn the_api_answers_as_its_document_says() {
    let recorded = RecordedStacks::new().await;
    for level in ["1", "2"] {
        let resources = vec![config_map("web", &json!({"level": level}))];
        recorded.apply("shop/prod", resources, StackResult::Applied).await;
    }
    let provider = OpenIdProvider::start();
    let workload = format!(
        "  workloads: [{{issuer: '{}', audience: scripts, subjects: [operator], role: operator, match: '**'}}]\n",
        provider.issuer()
    );
    Served::configure(&recorded, &provider, &workload);
    let served = Served::start(&recorded, &provider.portal(), Some(KEY));
    let sign = format!("{}/sign?sub=operator&aud=scripts&seconds=3000", provider.issuer());
    let token = reqwest::get(sign).await.unwrap().text().await.unwrap();
    let document = recorded.folder.path().join("openapi.json");
    std::fs::write(&document, konverge_portal::openapi().to_string()).unwrap();
    let checks =
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    let run = Konverge::of(
        &executable("schemathesis", "schemathesis"),
        [
            "run",
            document.to_str().unwrap(),
            "--url",
            served.root.as_str(),
            "--header",
            format!("Authorization: Bearer {token}").as_str(),
            "--checks",
            checks,
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            "40",
            "--seed",
            "40",
        ],
    )
    .dir(recorded.folder.path())
    .limit(std::time::Duration::from_secs(300))
    .run();
    let said = format!("{}{}", run.stdout, run.stderr);
    assert_eq!(run.code, Some(0), "{said}");
    // The examples of the document are of what is recorded, so each operation was answered, too.
    for missing in ["Missing test data", "Authentication failed"] {
        assert!(!said.contains(missing), "{said}");
    }
}
