//! The life cycle of Terraform resources: create, update, replace, drift, move, adopt, destroy.

use std::path::PathBuf;

use konverge_base::model::{
    masked_value,
    plan::{Action, ChangeOrigin},
};
use konverge_engine::runtime::{Item, Needs, Runtime};
use serde_json::json;

use super::{
    cli_fixture::Place,
    runtime_fixture::{Rig, data},
};

pub async fn from_creation_to_destruction(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let wanted = |content: &str, input: u32, again: u32| {
        vec![
            rig.file("greeting", json!(content)),
            data(
                "counter",
                json!({"input": {"n": input}, "triggers_replace": again}),
            ),
        ]
    };
    let (first, second, third) = (
        wanted("hello", 1, 1),
        wanted("good evening", 2, 1),
        wanted("good evening", 2, 2),
    );
    let plan = rig.plan(&first).await;
    assert_eq!(plan.len(), 1, "one module for the whole stack");
    let create = &plan[0][0].public;
    assert_eq!((create.action, create.changes.len()), (Action::Create, 1));
    let to = create.changes[0].to.as_ref().unwrap();
    assert_eq!(to["content"], "hello");
    assert_eq!(to["id"], masked_value::unknown(), "known after apply");
    assert!(!rig.path("greeting").exists());

    let sink = rig.apply(&first).await;
    assert_eq!(std::fs::read_to_string(rig.path("greeting")).unwrap(), "hello");
    let live = sink.end_of("counter").unwrap().unwrap().live.unwrap();
    assert_eq!(live["output"]["n"], 1);
    assert!(live["id"].is_string());
    let again = rig.actions(&first).await;
    assert!(again.values().all(|a| *a == Action::Unchanged), "{again:?}");

    let plan = rig.plan(&second).await;
    let (file, counter) = (&plan[0][0].public, &plan[0][1].public);
    assert_eq!((file.action, counter.action), (Action::Replace, Action::Update));
    assert_eq!(file.replace, ["/content"]);
    assert!(file.data_loss && !counter.data_loss);
    let own: Vec<_> = file
        .changes
        .iter()
        .filter(|c| c.origin == ChangeOrigin::Change)
        .map(|c| c.path.as_str())
        .collect();
    assert_eq!(
        own,
        ["/content"],
        "what the provider computes is no change of ours"
    );
    let paths: Vec<_> = counter.changes.iter().map(|c| c.path.as_str()).collect();
    assert_eq!(paths, ["/input/n", "/output"]);
    let digests = |plan: &[Vec<konverge_engine::runtime::PlannedResource>]| -> Vec<_> {
        plan[0].iter().map(|p| p.public.digest).collect()
    };
    assert_eq!(
        digests(&plan),
        digests(&rig.plan(&second).await),
        "the same change has the same digest"
    );
    rig.apply(&second).await;
    assert_eq!(
        std::fs::read_to_string(rig.path("greeting")).unwrap(),
        "good evening"
    );

    let plan = rig.plan(&third).await;
    assert_eq!(plan[0][1].public.action, Action::Replace);
    assert_eq!(plan[0][1].public.replace, ["/triggers_replace"]);
    rig.apply(&third).await;

    let only_counter = vec![third[1].clone()];
    let plan = rig.plan(&only_counter).await;
    assert_eq!(plan[1][0].public.action, Action::Delete);
    assert_eq!(
        plan[1][0].public.changes[0].from.as_ref().unwrap()["content"],
        "good evening"
    );
    rig.apply(&only_counter).await;
    assert!(!rig.path("greeting").exists());
    rig.apply(&[]).await;
    assert!(rig.recorded.is_empty());
}

pub async fn hostile_text_stays_text(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let hostile = [
        "${file(\"/etc/passwd\")}",
        "$${x}",
        "$$${x}",
        "%{ for x in [1] }${x}%{ endfor }",
        "%%{if}",
        "a\"b\\c\n${\"d\"}\t\u{1}$",
        "<<EOF\n${x}\nEOF",
        "\u{2028}${x}é😀",
    ];
    let mut wanted: Vec<_> = hostile
        .iter()
        .enumerate()
        .map(|(n, text)| rig.file(&format!("hostile{n}"), json!(text)))
        .collect();
    wanted.push(data("keys", json!({"input": {"${x}": {"%{if}": "${y}"}}})));
    let sink = rig.apply(&wanted).await;
    for (n, text) in hostile.iter().enumerate() {
        let written = std::fs::read_to_string(rig.path(&format!("hostile{n}"))).unwrap();
        assert_eq!(&written, text);
    }
    let live = sink.end_of("keys").unwrap().unwrap().live.unwrap();
    assert_eq!(live["output"], json!({"${x}": {"%{if}": "${y}"}}));
    let again = rig.actions(&wanted).await;
    assert!(again.values().all(|a| *a == Action::Unchanged), "{again:?}");
}

pub async fn references_are_left_to_terraform(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let counter = "$kusion_path.terraform:builtin:terraform_data:counter";
    let wanted = [
        rig.file("whole", json!(format!("{counter}.id"))),
        rig.file(
            "inside",
            json!(format!(
                "n={counter}.output.list[1] of ${{x}} at {counter}.output[\"a b\"]!"
            )),
        ),
        data("counter", json!({"input": {"list": [7, 8], "a b": "c"}})),
    ];
    let plan = rig.plan(&wanted).await;
    assert_eq!(plan.len(), 1);
    let expected = plan[0][0].expected.as_ref().unwrap();
    assert_eq!(expected["content"], masked_value::unknown());
    let sink = rig.apply(&wanted).await;
    let live = sink.end_of("counter").unwrap().unwrap().live.unwrap();
    assert_eq!(
        json!(std::fs::read_to_string(rig.path("whole")).unwrap()),
        live["id"]
    );
    assert_eq!(
        std::fs::read_to_string(rig.path("inside")).unwrap(),
        "n=8 of ${x} at c!"
    );
    assert!(
        rig.actions(&wanted)
            .await
            .values()
            .all(|a| *a == Action::Unchanged)
    );
    // Terraform deletes in its own order, by what the state remembers.
    rig.apply(&[]).await;
}

pub async fn values_of_other_segments(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let unknown = [
        rig.file("address", masked_value::unknown()),
        data(
            "all",
            json!({"input": [masked_value::unknown(), {"a": masked_value::unknown()}, 1]}),
        ),
    ];
    let plan = rig.plan(&unknown).await;
    assert_eq!(plan[0].len(), 2, "the placeholder is not shown");
    let to = plan[0][0].public.changes[0].to.as_ref().unwrap();
    assert_eq!(to["content"], masked_value::unknown());
    assert!(masked_value::holds_unknown(
        &plan[0][1].expected.as_ref().unwrap()["input"]
    ));
    let sink = super::runtime_fixture::Sink::default();
    let planned = plan.into_iter().next().unwrap();
    rig.runtime.apply(&rig.scope, planned, &sink).await.unwrap();
    let refused = sink.end_of("address").unwrap().unwrap_err();
    assert!(
        refused.message.contains("plan"),
        "a picture cannot be applied: {refused}"
    );
    assert!(!rig.path("address").exists());

    let known = [
        rig.file("address", json!("10.0.0.7")),
        data("all", json!({"input": [1, {"a": 2}, 1]})),
    ];
    rig.apply(&known).await;
    // A change of what was known before is told from what stays.
    let plan = rig.plan(&unknown).await;
    assert_eq!(plan[0][0].public.action, Action::Replace);
}

pub async fn drift_is_told_from_change(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let wanted = [rig.file("a", json!("a")), rig.file("b", json!("b"))];
    rig.apply(&wanted).await;
    std::fs::write(rig.path("a"), "changed by hand").unwrap();
    let items: Vec<Item> = wanted
        .iter()
        .map(|r| Item {
            id: r.id.clone(),
            cluster: None,
            prior: rig.recorded.get(&r.id).cloned(),
            desired: None,
            needs: Needs::default(),
        })
        .collect();
    let seen = rig.runtime.observe(&rig.scope, &items).await.unwrap();
    // The provider takes a file of another content for another file: its own is gone.
    assert_eq!(seen[0].live, None);
    assert_eq!(seen[1].live.as_ref().unwrap()["content"], "b");
    let plan = rig.plan(&wanted).await;
    let (a, b) = (&plan[0][0].public, &plan[0][1].public);
    assert_eq!((a.action, b.action), (Action::Create, Action::Unchanged));
    assert_eq!(a.notes, ["it was deleted outside Konverge"]);
    assert_eq!(
        std::fs::read_to_string(rig.path("a")).unwrap(),
        "changed by hand",
        "a plan writes nothing"
    );
    rig.apply(&wanted).await;
    assert_eq!(std::fs::read_to_string(rig.path("a")).unwrap(), "a");

    std::fs::remove_file(rig.path("b")).unwrap();
    let only_a = &wanted[..1];
    let plan = rig.plan(only_a).await;
    assert_eq!(
        plan[1][0].public.action,
        Action::Forget,
        "gone outside and not wanted"
    );
    rig.apply(only_a).await;
    assert_eq!(rig.recorded.len(), 1);
}

pub async fn status_says_what_is_gone(binary: PathBuf) {
    let place = Place::new(&binary);
    place.want(&[
        Place::data("there", json!("x"), &[]),
        place.local("local_file", "gone", "x", &[]),
    ]);
    place.run("apply").arg("--yes").run().expect(0);
    std::fs::remove_file(place.path("gone")).unwrap();
    let status = place.command(&["status", "shop/prod", "--output", "json"]).run();
    let status = status.expect(0).json();
    let mut objects = status["stacks"][0]["objects"].as_array().unwrap().clone();
    objects.sort_by_key(|object| object["id"].to_string());
    assert_eq!(
        json!(objects),
        json!([
            {"id": "hashicorp:local:local_file:gone", "health": "failed", "message": "it is not there"},
            {"id": "terraform:builtin:terraform_data:there", "health": "ready", "message": ""},
        ])
    );
}

pub async fn a_renamed_resource_moves(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let old = data("old", json!({"input": "x"}));
    let sink = rig.apply(std::slice::from_ref(&old)).await;
    let id = sink.end_of("old").unwrap().unwrap().live.unwrap()["id"].clone();
    let mut new = data("new", json!({"input": "x"}));
    new.extensions
        .insert("konverge/moved-from".to_owned(), json!(old.id.as_str()));
    let plan = rig.plan(std::slice::from_ref(&new)).await;
    assert_eq!(plan[0][0].public.action, Action::Adopt);
    assert_eq!(
        plan[1][0].public.action,
        Action::Forget,
        "the old id gives its state away"
    );
    let sink = rig.apply(std::slice::from_ref(&new)).await;
    let live = sink.end_of("new").unwrap().unwrap().live.unwrap();
    assert_eq!(live["id"], id, "it is the same object");
    assert_eq!(rig.recorded.len(), 1);
    let again = rig.actions(std::slice::from_ref(&new)).await;
    assert_eq!(
        again.into_iter().collect::<Vec<_>>(),
        [("new".to_owned(), Action::Unchanged)]
    );
}

pub async fn adopted_and_left_standing(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let mut adopted = data("adopted", json!({"input": "x"}));
    adopted
        .extensions
        .insert("kusionstack.io/import-id".to_owned(), json!("made-elsewhere"));
    let plan = rig.plan(std::slice::from_ref(&adopted)).await;
    assert_eq!(plan[0][0].public.action, Action::Adopt);
    let sink = rig.apply(std::slice::from_ref(&adopted)).await;
    let live = sink.end_of("adopted").unwrap().unwrap().live.unwrap();
    assert_eq!(live["id"], "made-elsewhere");
    assert_eq!(
        rig.actions(std::slice::from_ref(&adopted)).await["adopted"],
        Action::Unchanged
    );

    let mut kept = rig.file("kept", json!("stays"));
    kept.extensions.insert("konverge/keep".to_owned(), json!(true));
    rig.apply(&[adopted.clone(), kept]).await;
    let plan = rig.plan(std::slice::from_ref(&adopted)).await;
    assert_eq!(plan[1][0].public.action, Action::Forget);
    rig.apply(std::slice::from_ref(&adopted)).await;
    assert_eq!(std::fs::read_to_string(rig.path("kept")).unwrap(), "stays");
    assert_eq!(rig.recorded.len(), 1);
}
