//! Stacks that a controller delivers, on a real API server and a real registry.

use std::collections::BTreeMap;

use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use super::delivery_stage::{LIMIT, Stage, Tool, only, said};
use crate::support::{service::eventually, shop_monorepo::resource, terraform};

async fn check_life(tool: Tool) {
    let stage = Stage::new(tool).await;
    let a = stage.config_map("a", json!({"x": "1", "gone": "y"}));
    let b = stage.config_map(
        "b",
        json!({"of": format!("$kusion_path.v1:ConfigMap:{}:a.data.x", stage.ns)}),
    );
    let old = stage.config_map("old", json!({}));
    stage.wants(&[a, b.clone(), old]);
    stage.apply().expect(0);
    assert_eq!(stage.managers("a").await, only("konverge"));
    let uid = stage.uid("a").await;

    // From here on the controller delivers. As long as it is not there, nothing is pushed.
    stage.configure(Some(tool.word()));
    let preview = stage.shop.run(&["preview", "shop/dev"]).expect(0);
    assert!(
        said(&preview).contains("an apply of shop/dev would stop"),
        "{}",
        said(&preview)
    );
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("is missing") && said(&refused).contains("konverge export"),
        "{}",
        said(&refused)
    );
    let documents = stage.delivery();
    let mut wrong = documents.clone();
    for document in &mut wrong {
        match document["kind"].as_str().unwrap() {
            "OCIRepository" => document["spec"]["url"] = json!("oci://example.com/other"),
            "Application" => document["spec"]["source"]["repoURL"] = json!("https://example.com/other"),
            _ => {}
        }
    }
    stage.install(&wrong).await;
    let refused = stage.apply().expect(3);
    assert!(
        said(&refused).contains("example.com/other") && said(&refused).contains(&stage.artifact()),
        "{}",
        said(&refused)
    );
    assert_eq!(stage.digest().await, None);
    for document in &wrong {
        stage.objects.delete(document).await;
    }
    stage.install(&documents).await;

    // The objects change their owner, and none is deleted.
    let mut inventory = BTreeMap::new();
    let applied = stage
        .apply_and_deliver(&documents, &mut inventory)
        .await
        .expect(0);
    assert!(!applied.stdout.is_empty());
    for name in ["a", "b", "old"] {
        assert_eq!(stage.managers(name).await, only(tool.manager()), "{name}");
    }
    assert_eq!(stage.uid("a").await, uid);
    let first = stage.digest().await.unwrap();
    let unchanged = stage.shop.ends(&["apply", "shop/dev"], 0);
    assert_eq!(unchanged, [("shop/dev".to_owned(), "unchanged".to_owned())]);
    assert_eq!(stage.digest().await.unwrap(), first);

    // The controller is not well, although the objects are as applied: nothing else says so.
    let asked = |command: &str, code: i32| {
        let arguments = [command, "shop/dev", "--exit-code", "--output", "json"];
        stage.shop.run(&arguments).expect(code).json()
    };
    assert_eq!(asked("drift", 0)["stacks"][0]["resources"], json!([]));
    asked("status", 0);
    stage.report_degraded(&documents).await;
    let kind = match tool {
        Tool::Flux => "source.toolkit.fluxcd.io/v1:OCIRepository:",
        Tool::Argocd => "argoproj.io/v1alpha1:Application:",
    };
    let differs = asked("drift", 2)["stacks"][0]["resources"][0].to_string();
    let is = asked("status", 2)["stacks"][0]["objects"].to_string();
    for said in [&differs, &is] {
        assert!(
            said.contains(kind) && said.contains("health is Degraded"),
            "{said}"
        );
    }
    stage.report(&documents, &first).await;
    asked("drift", 0);
    asked("status", 0);

    // A preview shows what the controller will do, also the removal of a field that it alone owns.
    let a = stage.config_map("a", json!({"x": "2"}));
    stage.wants(&[a, b, stage.config_map("new", json!({"k": "v"}))]);
    let preview = stage
        .shop
        .run(&["preview", "shop/dev", "--output", "json"])
        .expect(0)
        .stdout;
    for words in ["/data/gone", "/data/of", ":new\"", ":old\""] {
        assert!(preview.contains(words), "{words}: {preview}");
    }

    // It is killed between the push and the wait. The next run continues.
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    eventually("the tag has moved", LIMIT, || async {
        stage.digest().await.filter(|digest| *digest != first)
    })
    .await;
    run.signal(SIGKILL);
    run.wait();
    assert_eq!(stage.live("a").await.unwrap()["data"]["x"], "1");
    let second = stage.digest().await.unwrap();
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    stage.deliver(&documents, Some(&first), &mut inventory).await;
    tokio::task::spawn_blocking(|| run.wait())
        .await
        .unwrap()
        .expect(0);
    assert_eq!(stage.digest().await.unwrap(), second);
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"x": "2"}));
    assert_eq!(stage.live("b").await.unwrap()["data"]["of"], "2");
    assert!(stage.live("old").await.is_none() && stage.live("new").await.is_some());
    assert_eq!(
        stage.shop.ends(&["apply", "shop/dev"], 0),
        [("shop/dev".to_owned(), "unchanged".to_owned())]
    );

    // While the controller's object is there, Konverge does not apply. Then it takes the objects back.
    stage.configure(None);
    let refused = stage.apply().expect(3);
    assert!(
        said(&refused).contains("is delivered by")
            && (said(&refused).contains("without its objects") || said(&refused).contains("Orphan")),
        "{}",
        said(&refused)
    );
    for document in &documents {
        stage.objects.delete(document).await;
    }
    // A plan that is refused changes nothing, not even who manages a field.
    let a = stage.config_map("a", json!({"y": "3"}));
    stage.wants(&[a.clone(), stage.config_map("wrong", json!({"not a key": "v"}))]);
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert_eq!(stage.managers("a").await, only(tool.manager()));
    // Killed before its first write. The next run takes the fields back.
    stage.wants(&[a]);
    stage.killed_at_first_write().await;
    assert_eq!(stage.managers("a").await, only(tool.manager()));
    stage.apply().expect(0);
    assert_eq!(stage.managers("a").await, only("konverge"));
    assert_eq!(stage.uid("a").await, uid);
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"y": "3"}));
    assert!(stage.live("b").await.is_none() && stage.live("new").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn flux_takes_a_stack_over_delivers_it_and_gives_it_back() {
    check_life(Tool::Flux).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_takes_a_stack_over_delivers_it_and_gives_it_back() {
    check_life(Tool::Argocd).await;
}

/// The objects `a` and `old` of Konverge, which a controller delivers from now on.
async fn first_delivery(tool: Tool) -> (Stage, Vec<Value>) {
    let stage = Stage::new(tool).await;
    let (a, old) = (
        stage.config_map("a", json!({"x": "1"})),
        stage.config_map("old", json!({})),
    );
    stage.wants(&[a, old]);
    stage.apply().expect(0);
    stage.configure(Some(tool.word()));
    let documents = stage.delivery();
    stage.install(&documents).await;
    (stage, documents)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_delivery_that_failed_is_not_taken_for_done() {
    let (stage, documents) = first_delivery(Tool::Argocd).await;
    // Nobody delivers: each apply says so, also that after the push.
    stage.configure_with(Some("argocd"), "1s");
    for _ in 0..2 {
        let failed = stage.apply();
        assert_ne!(failed.code, Some(0), "{}", said(&failed));
        assert!(said(&failed).contains("did not deliver"), "{}", said(&failed));
    }
    stage.configure(Some("argocd"));
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    stage.deliver(&documents, None, &mut BTreeMap::new()).await;
    tokio::task::spawn_blocking(|| run.wait())
        .await
        .unwrap()
        .expect(0);
    // It is done now: nobody delivers again.
    stage.configure_with(Some("argocd"), "1s");
    assert_eq!(
        stage.shop.ends(&["apply", "shop/dev"], 0),
        [("shop/dev".to_owned(), "unchanged".to_owned())]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_controller_never_had_is_deleted_by_konverge() {
    let (stage, documents) = first_delivery(Tool::Flux).await;
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    let killed = eventually("the artifact is pushed", LIMIT, || stage.digest()).await;
    run.signal(SIGKILL);
    run.wait();
    assert_eq!(stage.managers("a").await, only(Tool::Flux.manager()));
    stage.wants(&[stage.config_map("a", json!({"x": "1"}))]);
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    // `old` is in no artifact that the controller delivers, so it does not delete it.
    let mut inventory = BTreeMap::new();
    stage.deliver(&documents, Some(&killed), &mut inventory).await;
    tokio::task::spawn_blocking(|| run.wait())
        .await
        .unwrap()
        .expect(0);
    assert!(stage.live("old").await.is_none());
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"x": "1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_push_that_was_refused_is_refused_again() {
    let stage = Stage::new(Tool::Flux).await;
    let a = stage.config_map("a", json!({"x": "1"}));
    stage.wants(std::slice::from_ref(&a));
    stage.apply().expect(0);
    stage.configure(Some("flux"));
    let documents = stage.delivery();
    stage.install(&documents).await;
    stage.push_other_content(std::slice::from_ref(&a));
    for _ in 0..2 {
        let refused = stage.apply();
        assert_ne!(refused.code, Some(0));
        assert!(
            said(&refused).contains("which no apply of this stack pushed"),
            "{}",
            said(&refused)
        );
        // Nothing was handed over to a controller that reads other content.
        assert_eq!(stage.managers("a").await, only("konverge"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_be_delivered_is_refused_before_the_push() {
    let stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    let a = stage.config_map("a", json!({"x": "1"}));
    stage.wants(std::slice::from_ref(&a));
    let documents = stage.delivery();
    stage.install(&documents).await;

    // An artifact never carries data of a Secret.
    let mut secret = stage.config_map("s", json!({}));
    secret["kind"] = json!("Secret");
    secret["data"] = json!({"p": "aHVudGVyMmh1bnRlcjI="});
    stage.wants(&[a.clone(), secret]);
    for command in ["preview", "apply"] {
        let arguments: &[&str] = match command {
            "apply" => &["apply", "shop/dev", "--yes"],
            _ => &["preview", "shop/dev"],
        };
        let refused = stage.shop.run(arguments);
        assert_ne!(refused.code, Some(0));
        assert!(
            said(&refused).contains("holds data of a Secret at `/data/p`"),
            "{}",
            said(&refused)
        );
    }

    // A level that no Kustomization reads would never be applied.
    let mut deeper = resource(&stage.config_map("b", json!({})));
    deeper["dependsOn"] = json!([format!("v1:ConfigMap:{}:a", stage.ns)]);
    stage.shop.wants("dev", &[resource(&a), deeper]);
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("reads `manifests/001/configmap-"),
        "{}",
        said(&refused)
    );
    assert_eq!(stage.digest().await, None);

    // Somebody else has pushed to the tag.
    stage.push_other_content(std::slice::from_ref(&a));
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("which no apply of this stack pushed"),
        "{}",
        said(&refused)
    );
    assert!(stage.live("a").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_goes_first_and_only_what_is_no_secret_goes_into_the_artifact() {
    let stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    let outside = tempfile::tempdir().unwrap();
    let local = |kind: &str, name: &str, content: &str| {
        json!({
            "id": format!("hashicorp:local:{kind}:{name}"), "type": "Terraform",
            "attributes": {"filename": outside.path().join(name), "content": content},
            "extensions": {"provider": format!("registry.terraform.io/hashicorp/local/{}", terraform::LOCAL_PROVIDER)},
        })
    };
    let beside = resource(&stage.config_map("beside", json!({})));
    stage.shop.wants("dev", std::slice::from_ref(&beside));
    let documents = stage.delivery();
    stage.install(&documents).await;
    let reads = |from: &str| {
        let value = format!("$kusion_path.hashicorp:local:{from}");
        resource(&stage.config_map("reads", json!({ "v": value })))
    };

    // A value that Terraform calls sensitive does not leave. A preview says so, also if it is not known yet, and an
    // apply changes nothing.
    let password = "the-password-that-no-artifact-holds";
    let known = local("local_sensitive_file", "hidden", password);
    let made = local("local_file", "made", "words");
    let later = "$kusion_path.hashicorp:local:local_file:made.id";
    let unknown = local("local_sensitive_file", "hidden", later);
    let reader = reads("local_sensitive_file:hidden.content");
    for wanted in [
        vec![known, reader.clone(), beside.clone()],
        vec![made, unknown, reader, beside.clone()],
    ] {
        stage.shop.wants("dev", &wanted);
        let preview = stage.shop.run(&["preview", "shop/dev"]);
        for refused in [preview, stage.apply()] {
            assert_ne!(refused.code, Some(0));
            let said = said(&refused);
            assert!(
                said.contains("would carry a secret value into the artifact at `/data/v`")
                    && said.contains("from `hashicorp:local:local_sensitive_file:hidden`"),
                "{said}"
            );
            assert!(!said.contains(password), "{said}");
        }
        assert_eq!(stage.digest().await, None);
        assert!(!outside.path().join("hidden").exists() && !outside.path().join("made").exists());
    }

    // Terraform does not say that this value is sensitive, and its name does only when it is known: the apply stops
    // before the push. Terraform's part is done and recorded.
    let token = "9xQ7-zL40-Wm3p-T8rK";
    let data = json!({
        "id": "terraform:builtin:terraform_data:made", "type": "Terraform",
        "attributes": {"input": {"password": token}},
    });
    let path = "$kusion_path.terraform:builtin:terraform_data:made.output.password";
    let reader = resource(&stage.config_map("reads", json!({ "v": path })));
    stage.shop.wants("dev", &[data, reader, beside.clone()]);
    stage.shop.run(&["preview", "shop/dev"]).expect(0);
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("would carry a secret value into the artifact at `/data/v`"),
        "{}",
        said(&refused)
    );
    assert!(!said(&refused).contains(token));
    assert_eq!(stage.digest().await, None);

    // What Terraform made is known at the push. Both objects are in one artifact, although one needs nothing of it.
    let file = local("local_file", "shown", "words");
    stage.shop.wants(
        "dev",
        &[file.clone(), reads("local_file:shown.id"), beside.clone()],
    );
    let mut inventory = BTreeMap::new();
    stage
        .apply_and_deliver(&documents, &mut inventory)
        .await
        .expect(0);
    let id = stage.live("reads").await.unwrap()["data"]["v"].clone();
    assert_eq!(id.as_str().map(str::len), Some(40), "{id}");
    assert_eq!(inventory.len(), 2);

    // It does not come after an object.
    let mut later = file;
    later["dependsOn"] = json!([beside["id"]]);
    stage.shop.wants("dev", &[later, beside]);
    let refused = stage.shop.run(&["preview", "shop/dev"]);
    assert!(
        said(&refused).contains("which a controller delivers after Terraform"),
        "{}",
        said(&refused)
    );
}
