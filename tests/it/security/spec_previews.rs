//! Where no cluster is asked, a reference that its stack may not use is refused all the same: in a merge group, and in
//! a preview that compares Specs.

use serde_json::json;

use crate::support::{ci_stage::Stage, payloads, shop_monorepo::resource, tiny_monorepo};

const STORES: &str = "secrets: {stores: {job: {kind: env, allow: [{stacks: 'appops/pay/*', paths: '*'}]}}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_without_a_cluster_judges_references() {
    let mut stage = Stage::small(STORES).await;
    for (at, (id, path, refusal)) in [
        ("pay/dev", "PAY_PASSWORD", None),
        (
            "shop/dev",
            "PAY_PASSWORD",
            Some("stack `shop/dev` may not read `PAY_PASSWORD`"),
        ),
        // A rule such as `*` is not for what a store of the state logs in with.
        ("pay/db", "PGPASSWORD", Some("`ref+job://PGPASSWORD`")),
        ("pay/db", "MYSQL_PWD", Some("`ref+job://MYSQL_PWD`")),
        (
            "pay/db",
            "OSS_ACCESS_KEY_SECRET",
            Some("`ref+job://OSS_ACCESS_KEY_SECRET`"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("spec-{at}");
        stage.monorepo.checkout("main").branch(&name);
        let text = format!("ref+job://{path}");
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "stringData": {"a": text}});
        let program = format!("resources = [{}]\n", resource(&object));
        tiny_monorepo::write_program(&stage.monorepo, id, &program);
        let head = stage.monorepo.commit(&name);
        let base = stage.monorepo.rev("main");
        let code = i32::from(refusal.is_some());

        let preview = ["preview", id, "--live", "never", "--base", "main"];
        let by_hand = stage.konverge(preview).run();
        let payload = payloads::merge_group(at as u64, &base, &head);
        let queue = format!("refs/heads/gh-readonly-queue/main/pr-{at}-{base}");
        let queued = stage.ci("merge_group", &payload, &head, &queue);
        for (what, outcome) in [("by hand", &by_hand), ("merge group", &queued.outcome)] {
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.code, Some(code), "{what}, {path} of {id}: {said}");
            assert!(refusal.is_none_or(|words| said.contains(words)), "{what}: {said}");
        }
    }
}
