//! The whole job on real parts: a pull request, its update, its merge and a scheduled run, against the real control
//! plane and an S3 server, with GitHub played by the fake. Afterwards the cluster and the bucket are read.

use k8s_openapi::api::apps::v1::Deployment;
use konverge_notify::signature;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::support::{
    ci_stage::{Stage, storefront},
    github_output::without_runs,
    webhook_receiver,
};

fn image(deployment: &Deployment) -> String {
    let spec = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    spec.containers[0].image.clone().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_its_update_its_merge_and_a_scheduled_run() {
    let (hook, heard) = webhook_receiver::receiver(Vec::new()).await;
    let mut stage = Stage::set_up("notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n").await;
    stage.env = vec![("HOOK_URL", hook), ("HOOK_KEY", "signing-key".to_owned())];
    let topics = || -> Vec<String> {
        let heard = heard.lock().unwrap();
        heard
            .iter()
            .map(|(_, body)| webhook_receiver::topic(body))
            .collect()
    };

    // The pull request: a comment, a status, a record; nothing is written to the cluster, and no state.
    let head = stage.propose("add-storefront", storefront);
    let opened = stage.pull_request(7, "add-storefront", "opened");
    opened.outcome.check(0);
    let comments = stage.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    let (comment, body) = comments[0].clone();
    assert!(body.starts_with("<!-- konverge:v1 "), "{body}");
    assert!(
        body.contains("storefront/dev") && body.contains("Deployment"),
        "{body}"
    );
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    assert!(opened.summary.contains("storefront/dev"), "{}", opened.summary);
    assert!(opened.outputs.contains("has-changes"), "{}", opened.outputs);
    let check = stage.check("konverge: plan").expect("a check run");
    assert_eq!(check["head_sha"], *head);
    assert_eq!(check["conclusion"], "success");
    assert!(
        check["output"]["text"]
            .as_str()
            .unwrap()
            .contains("storefront/dev")
    );
    assert!(body.contains("to reproduce it: <code>konverge preview"), "{body}");
    let markdown = std::fs::read_to_string(opened.output("markdown-path")).unwrap();
    assert!(markdown.starts_with("### Konverge preview: "), "{markdown}");
    assert!(opened.output("comment-url").ends_with(&format!("{comment}")));
    assert_eq!(opened.output("failed-stacks"), "[]");
    let page = std::fs::read_to_string(opened.output("summary-path")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("storefront/dev"));
    assert!(
        page.contains("compile and plan") && page.contains("1 compiled, 0 from the cache"),
        "{page}"
    );
    assert!(
        opened.summary.contains(&opened.output("summary-path")),
        "{}",
        opened.summary
    );
    assert!(stage.deployment().await.is_none());
    assert_eq!(stage.writes(), 0);
    let keys = stage.keys().await;
    assert!(
        keys.iter().any(|key| key.contains(&format!("reviews/7/{head}"))),
        "{keys:?}"
    );
    assert!(!keys.iter().any(|key| key.contains("/state/")), "{keys:?}");

    // The same again shows the same bytes: only the run differs, so the comment is edited in place.
    let again = stage.pull_request(7, "add-storefront", "synchronize");
    again.outcome.check(0);
    let without_marker = |body: &str| {
        body.lines()
            .skip(1)
            .filter(|line| !line.starts_with("<sub>"))
            .map(without_runs)
            .collect::<Vec<_>>()
    };
    let comments = stage.comments();
    assert_eq!(comments.len(), 1);
    assert_eq!(comments[0].0, comment);
    assert_eq!(without_marker(&comments[0].1), without_marker(&body));

    // The update: the same comment says the new thing.
    stage.monorepo.checkout("add-storefront").replace(
        "appops/storefront/dev/main.k",
        "LOG_LEVEL = \"debug\"",
        "LOG_LEVEL = \"info\"",
    );
    let head = stage.monorepo.commit("Log more");
    stage
        .pull_request(7, "add-storefront", "synchronize")
        .outcome
        .check(0);
    let comments = stage.comments();
    assert_eq!((comments.len(), comments[0].0), (1, comment));
    assert!(comments[0].1.contains(&head[..7]), "{}", comments[0].1);
    // Read out of the record of the head before.
    let since = &comments[0].1;
    assert!(
        since.contains("<b>Since your last push</b>")
            && since.contains("- edited: ")
            && since.contains("`storefront/dev`"),
        "{since}"
    );

    // The merge: exactly that happens.
    let merged = stage.merge(7, "add-storefront");
    merged.outcome.check(0);
    let tip = stage.monorepo.rev("main");
    assert_eq!(
        stage.status(&tip, "konverge/apply").as_deref(),
        Some("success"),
        "{}",
        merged.outcome.stderr
    );
    let deployment = stage.deployment().await.expect("it was applied");
    assert!(image(&deployment).contains("storefront"));
    assert_eq!(
        deployment.annotations().get("konverge/stack").map(String::as_str),
        Some("storefront/dev")
    );
    let keys = stage.keys().await;
    assert!(
        keys.iter().any(
            |key| key.contains("stacks/storefront/dev/state/") || key.contains("storefront%2Fdev/state/")
        ),
        "{keys:?}"
    );

    assert_eq!(topics(), ["apply-done"]);
    {
        let heard = heard.lock().unwrap();
        let (headers, body) = &heard[0];
        assert_eq!(
            headers["x-konverge-signature-256"].to_str().unwrap(),
            signature(
                "signing-key",
                headers["x-konverge-timestamp"].to_str().unwrap(),
                body
            )
        );
        assert!(body.contains("storefront/dev"), "{body}");
    }

    // Apply twice: the second writes nothing, and is not worth a word.
    let writes = stage.writes();
    stage.push(&tip, &tip).outcome.check(0);
    assert_eq!(stage.writes(), writes);
    assert_eq!(topics().len(), 1);

    // Something that nobody reviewed stops the stack before anything of it is touched.
    stage.monorepo.checkout("main").replace(
        "appops/storefront/dev/main.k",
        "LOG_LEVEL = \"info\"",
        "LOG_LEVEL = \"trace\"",
    );
    let pushed = stage.monorepo.commit("Straight to main");
    let stopped = stage.push(&tip, &pushed);
    stopped.outcome.check(3);
    assert_eq!(stage.writes(), writes);
    assert_eq!(
        stage.status(&pushed, "konverge/apply").as_deref(),
        Some("failure")
    );
    assert_eq!(topics()[1..], ["unreviewed"]);
    let issues = stage.github.world(|world| world.issues.clone());
    assert!(
        issues.iter().any(|issue| issue.title.contains("storefront/dev")),
        "{issues:?}"
    );
    stage
        .monorepo
        .checkout("main")
        .git(["revert", "--no-edit", "HEAD"]);
    let reverted = stage.monorepo.rev("main");
    stage.push(&pushed, &reverted).outcome.check(0);

    // The scheduled run: nothing, then drift that somebody made by hand.
    let calm = stage.schedule();
    calm.outcome.check(0);
    assert!(
        calm.outputs.contains("has-drift<<") && calm.outputs.contains("\nfalse\n"),
        "{}",
        calm.outputs
    );
    let api: Api<Deployment> = Api::namespaced(stage.cluster.client().await, "storefront-dev");
    let scale = |replicas: u32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let wanted = api
        .get("storefront")
        .await
        .unwrap()
        .spec
        .unwrap()
        .replicas
        .unwrap();
    api.patch("storefront", &PatchParams::default(), &scale(wanted as u32 + 1))
        .await
        .unwrap();
    let drifted = stage.schedule();
    drifted.outcome.check(0);
    assert_eq!(topics().last().unwrap(), "drift");
    assert!(drifted.outputs.contains("\ntrue\n"), "{}", drifted.outputs);
    let open = |stage: &Stage| {
        stage.github.world(|world| {
            let drift =
                |issue: &&crate::support::github::Issue| issue.labels.iter().any(|l| l == "konverge-drift");
            world
                .issues
                .iter()
                .filter(drift)
                .map(|issue| (issue.number, issue.state.clone(), issue.body.clone()))
                .collect::<Vec<_>>()
        })
    };
    let issues = open(&stage);
    assert_eq!(issues.len(), 1, "{issues:?}");
    assert!(
        issues[0].1 == "open" && issues[0].2.contains("replicas"),
        "{issues:?}"
    );

    // Put back by hand: the issue closes.
    api.patch("storefront", &PatchParams::default(), &scale(wanted as u32))
        .await
        .unwrap();
    stage.schedule().outcome.check(0);
    assert_eq!(open(&stage)[0].1, "closed");

    // What nobody reviewed can be agreed to by hand, by the digest that the refusal names.
    let before = stage.monorepo.rev("main");
    stage.monorepo.checkout("main").replace(
        "appops/storefront/dev/main.k",
        "LOG_LEVEL = \"info\"",
        "LOG_LEVEL = \"trace\"",
    );
    let pushed = stage.monorepo.commit("In a hurry");
    let stopped = stage.push(&before, &pushed);
    stopped.outcome.check(3);
    let (_, said) = stopped.outcome.stdout.split_once("approve: ").unwrap();
    let digest: String = said.chars().take_while(char::is_ascii_hexdigit).collect();
    let approve = |digest: &str| {
        json!({"ref": "refs/heads/main", "inputs": {"approve": digest},
            "repository": {"full_name": "acme/konfig", "default_branch": "main"}})
    };
    let other = "0".repeat(64);
    let refused = stage.ci("workflow_dispatch", &approve(&other), &pushed, "refs/heads/main");
    refused.outcome.check(3);
    let agreed = stage.ci("workflow_dispatch", &approve(&digest), &pushed, "refs/heads/main");
    agreed.outcome.check(0);
    let live = serde_json::to_string(&stage.deployment().await.unwrap()).unwrap();
    assert!(live.contains("\"trace\""), "{live}");
}
