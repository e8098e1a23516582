//! Sample pages, to be looked at in a browser.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    AppliedState, DriftView, FreezeView, HistoryDocument, HistoryRow, LeaseView, Overview, OverviewRow,
    SearchIndex, SearchNames, SeenStack, StackCondition, StackDetails, StateAtSerial, StateDifference,
    StoppedView, Writer, site_path,
};
use konverge_base::model::{
    Digest, RepoPath,
    apply_record::ApplyRecord,
    apply_result::StackResult,
    authorization::{Authorization, ReviewedPull},
    spec::{RuntimeKind, Sharing},
    state::{Recorded, RuntimeRecord, StackState},
};
use konverge_forge::{ForgeKind, RepositoryPages};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn writer(actor: &str) -> Writer {
    Writer {
        run: "https://github.com/acme/infra/actions/runs/4711".to_owned(),
        actor: actor.to_owned(),
    }
}

fn row(stack: &str, conditions: &[StackCondition]) -> OverviewRow {
    let has = |condition| conditions.contains(&condition);
    OverviewRow {
        stack: RepoPath::normalize(&format!("appops/{stack}")).unwrap().into(),
        id: stack.parse().unwrap(),
        conditions: conditions.to_vec(),
        applied: (!has(StackCondition::NeverApplied)).then(|| AppliedState {
            serial: 12,
            written: at("2026-11-24T09:12:40Z"),
            reason: "apply".to_owned(),
            writer: writer("ada"),
            result: Some(StackResult::Applied),
            commit: Some("4f2a9c0".repeat(6)[..40].parse().unwrap()),
            attempted: has(StackCondition::Failed).then(|| "9".repeat(40).parse().unwrap()),
        }),
        resources: 14,
        stopped: has(StackCondition::Stopped).then(|| StoppedView {
            at: at("2026-11-25T09:12:40Z"),
            result: StackResult::Stopped,
            writer: writer("grace"),
        }),
        drift: has(StackCondition::Drifted).then(|| DriftView {
            since: at("2026-11-20T03:00:00Z"),
            checked: at("2026-11-26T03:00:00Z"),
            digest: Digest::of_bytes(b"drift"),
        }),
        look: None,
        error: has(StackCondition::Unreadable).then(|| {
            "document `stacks/media%2Fdev/state/0000000012` is damaged: its checksum does not match"
                .to_owned()
        }),
    }
}

fn state(image: &str) -> StackState {
    let mut state = StackState::empty("storefront/prod".parse().unwrap(), RepoPath::root());
    for (id, depends_on, attributes) in [
        (
            "apps/v1:Deployment:storefront:web",
            vec!["v1:ConfigMap:storefront:web", "v1:Secret:storefront:web"],
            json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}}}),
        ),
        (
            "v1:ConfigMap:storefront:web",
            vec!["v1:Namespace:storefront"],
            json!({"data": {"level": "info"}}),
        ),
        (
            "v1:Secret:storefront:web",
            vec!["v1:Namespace:storefront"],
            json!({"data": {"password": {"$secret": "9a31cf02"}}}),
        ),
        (
            "v1:Service:storefront:web",
            vec!["apps/v1:Deployment:storefront:web"],
            json!({"spec": {"type": "ClusterIP"}}),
        ),
    ] {
        state.put(Recorded {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            cluster: "prod-eu".parse().ok(),
            attributes: Arc::new(attributes.as_object().unwrap().clone()),
            depends_on: depends_on.iter().map(|id| id.parse().unwrap()).collect(),
            extensions: serde_json::Map::new(),
            sharing: Sharing::default(),
            object_hash: None,
            private: RuntimeRecord::default(),
        });
    }
    state
}

fn history() -> Vec<HistoryRow> {
    let document = |serial: u64| HistoryDocument::Read {
        reason: "apply".to_owned(),
        writer: writer("ada"),
        time: at("2026-11-24T09:12:40Z"),
        commit: Some("4f2a9c0".repeat(6)[..40].parse().unwrap()),
        resources: 4,
        note: (serial == 11).then(|| "rolled back to serial 9".to_owned()),
        receipt: Some(Box::new(ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: None,
            merged: None,
            result: StackResult::Applied,
            grounds: Authorization {
                pull_requests: vec![ReviewedPull {
                    number: 318,
                    head: "c".repeat(40).parse().unwrap(),
                    reviewers: Some(vec!["grace".to_owned(), "linus".to_owned()]),
                }],
                ..Authorization::default()
            },
        })),
    };
    let unreadable = "its checksum does not match: it was truncated or edited".to_owned();
    let mut rows: Vec<_> = (11..=12)
        .rev()
        .map(|serial| HistoryRow {
            serial,
            document: document(serial),
        })
        .collect();
    rows.push(HistoryRow {
        serial: 10,
        document: HistoryDocument::Unreadable { unreadable },
    });
    rows
}

/// Writes the pages into the folder of `SAMPLE_PAGES`.
#[test]
#[ignore = "writes pages; run it by hand with SAMPLE_PAGES"]
fn sample_pages() {
    let folder = PathBuf::from(std::env::var("SAMPLE_PAGES").expect("SAMPLE_PAGES"));
    let mut stacks = vec![
        row(
            "storefront/prod",
            &[StackCondition::Failed, StackCondition::Drifted],
        ),
        row("media/dev", &[StackCondition::Unreadable]),
        row("orders/prod", &[StackCondition::Stopped, StackCondition::Pending]),
        row("search/prod", &[StackCondition::Open]),
        row("search/staging", &[StackCondition::Drifted]),
        row("billing/prod", &[StackCondition::Pending]),
        row("billing/new", &[StackCondition::NeverApplied]),
        row("old/prod", &[StackCondition::Destroyed]),
    ];
    stacks.extend((0..45).map(|n| row(&format!("team-{n:02}/prod"), &[StackCondition::Applied])));
    let mut overview = Overview {
        version: 1,
        repository: "github.com/acme/infra".to_owned(),
        head: Some("4f2a9c0".repeat(6)[..40].parse().unwrap()),
        forge: RepositoryPages::parse(ForgeKind::Github, "https://github.com/acme/infra"),
        freeze: Some(FreezeView {
            reason: "the database is being moved".to_owned(),
            since: at("2026-11-26T08:00:00Z"),
            writer: writer("grace"),
        }),
        notices: vec!["The index has no row of 3 stacks: their states were read. `konverge state doctor --repair` writes it.".to_owned()],
        stacks,
    };
    overview.sort();
    let mut index = SearchIndex::default();
    for row in &overview.stacks {
        let names = SearchNames {
            names: BTreeMap::from([
                ("apps/v1:Deployment".to_owned(), vec!["storefront:web".to_owned()]),
                ("v1:Service".to_owned(), vec!["storefront:web".to_owned()]),
            ]),
            images: ["registry.acme.example/storefront/web:1.42.0".to_owned()].into(),
            more: 0,
        };
        index.add(&row.id, names);
    }
    let view = StackDetails {
        version: 1,
        row: overview.stacks[0].clone(),
        notices: vec![
            "The index is older than the state: it knows serial 11, and serial 12 is stored.".to_owned(),
        ],
        state: Some(state("registry.acme.example/storefront/web:1.42.0")),
        pending: vec!["v1:Service:storefront:web".parse().unwrap()],
        seen: SeenStack::default(),
        forge: overview.forge.clone(),
        history: history(),
        lease: Some(LeaseView {
            id: "12-8f31".to_owned(),
            writer: writer("ada"),
            since: at("2026-11-26T08:00:00Z"),
            term_seconds: Duration::from_secs(60),
        }),
    };
    let (old, new) = (
        state("registry.acme.example/storefront/web:1.41.7"),
        state("registry.acme.example/storefront/web:1.42.0"),
    );
    let page = StackPage {
        view: &view,
        differences: &[(11, 12)],
        older: 0,
        mode: PageMode::Static,
    };
    let stack_folder = site_path::stack_folder(&view.row.id);
    for (path, text) in [
        (
            site_path::OVERVIEW.to_owned(),
            super::overview(&overview, &overview, PageMode::Static, None, ""),
        ),
        (
            site_path::SEARCH.to_owned(),
            search(&index, PageMode::Static, "", None),
        ),
        (site_path::SEARCH_DATA.to_owned(), search_data(&index)),
        (site_path::STYLE.to_owned(), style()),
        (site_path::SCRIPT.to_owned(), SCRIPT.to_owned()),
        (
            site_path::kind("apps/v1:Deployment"),
            kind(&index, "apps/v1:Deployment").unwrap(),
        ),
        (site_path::stack(&view.row.id), stack(&page)),
        (
            format!("{stack_folder}/11-12.html"),
            difference(&StateDifference::between(
                StateAtSerial::new(11, &old),
                StateAtSerial::new(12, &new),
            )),
        ),
    ] {
        let file = folder.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}
