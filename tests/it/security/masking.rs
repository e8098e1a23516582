//! Secrets that stand where nobody expects them: they leave by no way, whatever is done to a text on it; and nobody can
//! use them to hide from reviewers what is applied afterwards, or to make names unreadable.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, RepoPath,
        apply_result::{ApplyReport, ResourceOutcome, ResourceResult, StackOutcome, StackResult},
        authorization::Authorization,
        plan::{Action, ChangeOrigin, Plan},
    },
};
use konverge_report::{
    COMMENT_BUDGET, SUMMARY_BUDGET, checks, html, json as document, markdown, outcome, terminal,
};
use konverge_secrets::{HashKey, Secrets, redact};
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage, everything_in},
    sample_plans, tiny_monorepo, webhook_receiver,
};

/// In every secret, often enough that no part of one can be shown without it.
const NEEDLE: &str = "n33dle";

/// Texts that are escaped, broken into lines or cut short on their way.
fn awkward() -> Vec<String> {
    vec![
        format!("{NEEDLE}&il'<9x>{NEEDLE}"),
        format!("{NEEDLE}\"c\\def-77{NEEDLE}"),
        format!("{NEEDLE}\n  {NEEDLE}: \"a\\b\"\n\t{NEEDLE}&amp;\u{202e}{NEEDLE}\n"),
        format!("|{NEEDLE}`{NEEDLE}@octocat"),
        NEEDLE.repeat(400),
    ]
}

#[test]
fn no_form_of_a_secret_is_rendered() {
    let secrets = Secrets::new(HashKey::derive("k"));
    for secret in awkward() {
        secrets.mark(&json!(secret));
    }
    for secret in awkward() {
        let within = format!("user:{secret}@db");
        let said = format!("refused: {secret} is too long\nand {within}");
        let failure = UserError::new(ErrorKind::Kcl, said.clone())
            .at("main.k", Some(3), None)
            .hint(said.clone());
        let object = json!({"data": {"whole": secret, "within": within, "list": [secret, {"x": within}]}});
        let mut created = sample_plans::resource(
            "shop/dev",
            "v1:ConfigMap:shop:new",
            Action::Create,
            vec![sample_plans::change("", None, Some(object), ChangeOrigin::Change)],
        );
        created.notes.push(said.clone());
        let changes = [ChangeOrigin::Change, ChangeOrigin::Drift].map(|origin| {
            let path = format!("/data/{}", if origin == ChangeOrigin::Drift { "b" } else { "a" });
            sample_plans::change(&path, Some(json!(secret)), Some(json!(within)), origin)
        });
        let updated = sample_plans::resource(
            "shop/dev",
            "v1:ConfigMap:shop:old",
            Action::Update,
            changes.into(),
        );
        let mut failed = sample_plans::stack("shop/prod", Vec::new());
        failed.error = Some(failure.body());
        let mut shop = sample_plans::shop();
        shop.plan.stacks = vec![sample_plans::stack("shop/dev", vec![created, updated]), failed];
        redact::plan(&mut shop.plan, &secrets);
        let mut report = ApplyReport {
            version: 1,
            stacks: vec![StackOutcome {
                stack: RepoPath::root(),
                id: "shop/dev".parse().unwrap(),
                result: StackResult::Failed,
                digest: Digest::of_bytes(b""),
                serial: None,
                grounds: Authorization::default(),
                waiting: None,
                resources: vec![ResourceOutcome {
                    id: "v1:ConfigMap:shop:old".parse().unwrap(),
                    action: Action::Update,
                    result: ResourceResult::Failed,
                    written: false,
                    message: Some(said),
                    is_stack_error: true,
                }],
                error: Some(failure.body()),
            }],
        };
        redact::report(&mut report, &secrets);
        let style = terminal::Style::default();
        let dev = &shop.plan.stacks[0];
        let (run, marker) = (&shop.run, &shop.marker);
        let units = konverge_base::model::review::stack_units(dev);
        let seen = markdown::DriftSeen {
            since: "now",
            unrestorable: None,
            workflow: "konverge.yml",
            start: markdown::ManualStart::Command,
            keeping: markdown::DriftKeeping::ByWorkflow,
        };
        let rendered = [
            ("comment", markdown::comment(&shop.input(COMMENT_BUDGET)).body),
            ("packed comment", markdown::comment(&shop.input(9000)).body),
            (
                "summary",
                markdown::summary(&shop.input(SUMMARY_BUDGET), SUMMARY_BUDGET).body,
            ),
            ("page", html::report(&shop.input(0))),
            ("terminal", terminal::plan(&shop.plan, style)),
            ("json", document::document(&shop.plan)),
            ("checks", format!("{:?}", checks::checks(&shop.plan, 50, ""))),
            ("annotations", format!("{:?}", checks::annotations(&shop.plan))),
            (
                "drift issue",
                markdown::drift_issue(dev, run, marker, &seen, COMMENT_BUDGET),
            ),
            (
                "issue",
                markdown::unreviewed(dev, &units, run, marker, COMMENT_BUDGET),
            ),
            ("outcome", markdown::outcome(&report, run, None, COMMENT_BUDGET)),
            ("outcome in a terminal", outcome::text(&report, style)),
            ("outcome in json", document::document(&report)),
            ("failure", document::failure(&redact::failure(&failure, &secrets))),
        ];
        for (what, text) in rendered {
            assert!(!text.contains(NEEDLE), "{what} shows {secret:?}:\n{text}");
            assert!(text.contains("***"), "{what} says nothing of {secret:?}:\n{text}");
        }
    }
}

#[test]
fn names_and_our_own_words_are_never_masked() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let note = "/data/host contains the value of a Secret and is masked: check it in the code";
    for decoy in [
        "orders-database-main",
        "host-of-orders",
        note,
        "\"id\":\"orders-database-main/dev\"",
    ] {
        secrets.mark(&json!(decoy));
    }
    let id = "v1:ConfigMap:orders:orders-database-main";
    let path = "/data/host-of-orders";
    let changes = [
        sample_plans::change(path, Some(json!("a")), Some(json!("b")), ChangeOrigin::Change),
        sample_plans::change(
            "/data/host",
            Some(json!("a")),
            Some(json!("host-of-orders")),
            ChangeOrigin::Change,
        ),
    ];
    let resource = sample_plans::resource("orders-database-main/dev", id, Action::Update, changes.into());
    let mut plan = Plan {
        version: 1,
        stacks: vec![sample_plans::stack("orders-database-main/dev", vec![resource])],
    };
    let digest = plan.stacks[0].digest;
    let hidden = redact::plan(&mut plan, &secrets);
    assert_eq!(hidden.len(), 1);
    assert_eq!(
        (hidden[0].resource.as_str(), hidden[0].path.as_str()),
        (id, "/data/host")
    );
    assert_eq!(
        plan.stacks[0].digest, digest,
        "what is agreed to is what would be done"
    );

    let text = secrets.mask_finished(&document::document(&plan));
    let row: Value = serde_json::from_str(&text).unwrap();
    let stack = &row["stacks"][0];
    assert_eq!(stack["id"], "orders-database-main/dev");
    assert_eq!(stack["stack"], "appops/orders-database-main/dev");
    assert_eq!(stack["resources"][0]["id"], id);
    let changes = &stack["resources"][0]["changes"];
    assert_eq!(changes[1]["path"], path);
    assert_eq!(changes[0]["to"], secrets.mark(&json!("host-of-orders")));
    let text = secrets.mask_finished(&terminal::plan(&plan, terminal::Style::default()));
    assert!(
        text.contains("orders-database-main/dev") && text.contains(note),
        "{text}"
    );
}

/// A ConfigMap and a Secret, each with one value.
fn with_secret(stage: &Stage, id: &str, map: &str, value: &str, secret: &str) {
    let object = |kind: &str, name: &str, data: &str, key: &str, text: &str| {
        format!(
            "    {{id = \"v1:{kind}:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"{kind}\", metadata = {{name = \"{name}\", namespace = \"default\"}}, {data} = {{{key} = {}}}}}}}\n",
            json!(text)
        )
    };
    let resources = [
        object("ConfigMap", map, "data", "value", value),
        object(
            "Secret",
            &format!("{map}-secret"),
            "stringData",
            "username",
            secret,
        ),
    ];
    tiny_monorepo::write_program(
        &stage.monorepo,
        id,
        &format!("resources = [\n{}]\n", resources.concat()),
    );
}

/// The units that are on record of a pull request.
async fn recorded(stage: &Stage, number: u64) -> Vec<String> {
    let states = stage.states().await;
    let place = &states.reviews().list_for_pull_request(number).await.unwrap()[0];
    let record = states.reviews().load(place).await.unwrap().unwrap();
    let stacks = record.stacks.iter();
    stacks
        .flat_map(|stack| &stack.units)
        .map(|unit| format!("{} {}", unit.resource, unit.to.as_ref().unwrap_or(&Value::Null)))
        .collect()
}

/// Someone who adds a Secret with the text of another field hides that field from reviewers: it is named, it is on no
/// record, and the merge applies it only when somebody agrees to its digest. On all this way it is shown nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_decoy_hides_is_not_reviewed() {
    let image = "evil.example.com/miner?a=1&b=<2>\"\\'";
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let notify = "notify:\n- {kind: slack, url_env: CHAT_URL}\n";
    let mut stage = Stage::small(notify).await;
    stage.env = vec![("CHAT_URL", url)];
    let (_, previewed) = stage.reviewed(7, "decoy", |stage| {
        with_secret(stage, "decoy/dev", "decoy-web", image, image);
    });
    let comment = stage.comments()[0].1.clone();
    assert!(comment.contains("[!CAUTION]"), "{comment}");
    assert!(
        comment.contains(
            "/data/value in `v1:ConfigMap:default:decoy-web` contains the value of a Secret in clear text"
        ),
        "{comment}"
    );
    let units = recorded(&stage, 7).await;
    assert_eq!(units.len(), 1, "{units:?}");
    assert!(units[0].contains("Secret:default:decoy-web-secret"), "{units:?}");

    let merged = stage.merge(7, "decoy");
    merged.outcome.check(3);
    assert!(
        merged
            .outcome
            .stdout
            .contains("no merged pull request showed this change")
    );
    assert_eq!(stage.value("decoy-web").await, None);
    let issue = stage.github.world(|world| world.issues[0].body.clone());
    assert!(
        issue.contains("/data/value contains the value of a Secret and is masked"),
        "{issue}"
    );

    nowhere("miner", &stage, &[&previewed, &merged]);
    let told = format!("{:?}", heard.lock().unwrap());
    assert!(told.contains("decoy/dev") && !told.contains("miner"), "{told}");
    stage.approve(&merged.digest()).outcome.check(0);
    assert_eq!(stage.value("decoy-web").await.as_deref(), Some(image));
}

/// A Secret that holds a word, or the name of a stack, leaves every name as it is: in what people read, and in the rows
/// that programs find by identity. What was shown is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_holds_a_name_leaves_names_alone() {
    let mut stage = Stage::small("").await;
    let name = "orders-database-main";
    let (head, previewed) = stage.reviewed(7, "names", |stage| {
        with_secret(stage, "postgres/dev", "postgres", "postgres", "postgres");
        with_secret(stage, &format!("{name}/dev"), "names-web", "one", name);
    });
    let comment = stage.comments()[0].1.clone();
    let result = previewed.output("result-path");
    let result = std::fs::read_to_string(result).unwrap();
    let page = std::fs::read_to_string(previewed.output("summary-path")).unwrap();
    let told = [
        &comment,
        &result,
        &page,
        &previewed.summary,
        &previewed.outcome.stdout,
    ];
    for text in told {
        for id in ["postgres/dev", &format!("{name}/dev")] {
            assert!(text.contains(id), "{id} is not in:\n{text}");
        }
        assert!(!text.contains("***"), "{text}");
    }
    let rows: Value = serde_json::from_str(&result).unwrap();
    let ids: Vec<_> = rows["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["id"])
        .collect();
    assert_eq!(ids, [&json!(format!("{name}/dev")), &json!("postgres/dev")]);
    stage.monorepo.checkout(&head);
    let locally = stage
        .konverge(["preview", "--base", "main", "--live", "never", "--output", "json"])
        .run()
        .expect(0);
    let ids: Vec<_> = locally.json()["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].clone())
        .collect();
    assert_eq!(ids, [json!(format!("{name}/dev")), json!("postgres/dev")]);

    stage.merge(7, "names").outcome.check(0);
    assert_eq!(stage.value("postgres").await.as_deref(), Some("postgres"));
}

/// The word is in nothing that left the process but the cluster and the caches.
fn nowhere(word: &str, stage: &Stage, ran: &[&Ran]) {
    let mut left = String::new();
    for request in stage.github.requests() {
        left += &format!("{} {:?} {}\n", request.path, request.query, request.body);
    }
    for ran in ran {
        left += &format!("{}{}{}", ran.outcome.stdout, ran.outcome.stderr, ran.summary);
        left += &everything_in(&ran.folder);
    }
    left += &everything_in(&stage.scratch.path().join("store"));
    let at = left.find(word);
    assert!(
        at.is_none(),
        "{:?}",
        at.map(|at| left.get(at.saturating_sub(200)..at + 100))
    );
}
