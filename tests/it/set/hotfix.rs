//! `--keep`: what somebody changed on the cluster by hand becomes the code, or the message says why not.

use serde_json::Value;

use crate::support::{ci_stage::Stage, process::Outcome, random::Random, tiny_monorepo};

pub(super) const MAIN: &str = "appops/keep/dev/main.k";

/// A stage with one applied stack of ConfigMaps, each with the value of an expression.
pub(super) async fn applied(settings: &str, maps: &[(String, String)]) -> Stage {
    let mut stage = Stage::small("").await;
    let resource = |(map, value): &(String, String)| {
        format!(
            "    {{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{value = {value}}}}}}}\n"
        )
    };
    let resources: String = maps.iter().map(resource).collect();
    let program = format!("_settings = {{\n{settings}}}\nresources = [\n{resources}]\n");
    stage.reviewed(7, "keep", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "keep/dev", &program)
    });
    stage.merge(7, "keep").outcome.check(0);
    stage.monorepo.checkout("main");
    stage
}

pub(super) fn maps(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(map, value)| ((*map).to_owned(), (*value).to_owned()))
        .collect()
}

fn drift(stage: &Stage) -> Value {
    let checked = stage.konverge(["drift", "keep/dev", "--output", "json"]).run();
    checked.expect(0).json()["stacks"][0].clone()
}

fn keep(stage: &Stage) -> Outcome {
    let digest = drift(stage)["digest"].as_str().unwrap().to_owned();
    stage.konverge(["set", "keep/dev", "--keep", &digest]).run()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attribute_of_a_changed_field_gets_the_live_value() {
    let settings = "    first = \"one\"\n    second = \"two\"\n    shared = \"three\"\n";
    let list = maps(&[
        ("keep-a", "_settings.first"),
        ("keep-b", "\"b-${_settings.second}\""),
        ("keep-c", "_settings.shared"),
        ("keep-d", "_settings.shared"),
    ]);
    let stage = applied(settings, &list).await;
    let before = stage.monorepo.read(MAIN);
    stage.by_hand("keep-a", Some("by hand")).await;
    keep(&stage).expect(0);
    assert_eq!(
        stage.monorepo.read(MAIN),
        before.replace("first = \"one\"", "first = \"by hand\"")
    );
    // The digest stands for this difference alone.
    let digest = drift(&stage)["digest"].as_str().unwrap().to_owned();
    stage.by_hand("keep-a", Some("by hand again")).await;
    let refused = stage
        .konverge(["set", "keep/dev", "--keep", &digest])
        .run()
        .expect(64);
    assert!(
        refused
            .stderr
            .contains("the difference changed since it was shown"),
        "{}",
        refused.stderr
    );
    stage.monorepo.git(["checkout", "--quiet", "."]);
    stage.by_hand("keep-a", Some("one")).await;
    // Computed: nothing is guessed.
    stage.by_hand("keep-b", Some("b-other")).await;
    let refused = keep(&stage).expect(1);
    assert!(
        refused
            .stderr
            .contains("sets the value of v1:ConfigMap:default:keep-b"),
        "{}",
        refused.stderr
    );
    stage.by_hand("keep-b", Some("b-two")).await;
    // One attribute makes two objects: kept only if both were changed to the same.
    stage.by_hand("keep-c", Some("four")).await;
    let refused = keep(&stage).expect(1);
    assert!(
        refused.stderr.contains("alone; tried: `_settings.shared`"),
        "{}",
        refused.stderr
    );
    assert_eq!(stage.monorepo.git(["status", "--porcelain"]), "");
    stage.by_hand("keep-d", Some("four")).await;
    keep(&stage).expect(0);
    assert_eq!(
        stage.monorepo.read(MAIN),
        before.replace("shared = \"three\"", "shared = \"four\"")
    );
    stage.monorepo.git(["checkout", "--quiet", "."]);
    // What was deleted by hand is not code.
    stage.by_hand("keep-d", None).await;
    let refused = keep(&stage).expect(1);
    assert!(
        refused.stderr.contains("created or deleted by hand"),
        "{}",
        refused.stderr
    );
    assert_eq!(stage.monorepo.git(["status", "--porcelain"]), "");
}

/// Of many attributes with few different values the right one is found, or none; never a wrong one.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_attribute_is_never_edited() {
    const COUNT: usize = 12;
    let mut random = Random::of(7);
    let names: Vec<_> = (0..COUNT).map(|at| format!("never-{at}")).collect();
    let settings: String = (0..COUNT)
        .map(|at| format!("    s{at} = \"v{}\"\n", random.below(3)))
        .collect();
    // Some attributes make no object, some make two.
    let list: Vec<_> = names
        .iter()
        .map(|name| (name.clone(), format!("_settings.s{}", random.below(COUNT))))
        .collect();
    let stage = applied(&settings, &list).await;
    let mut kept = 0;
    for round in 0..8 {
        let name = random.pick(&names).clone();
        let value = format!("hand-{round}");
        let before = stage.value(&name).await.unwrap();
        stage.by_hand(&name, Some(&value)).await;
        let ended = keep(&stage);
        if ended.code == Some(0) {
            kept += 1;
            let built = stage
                .konverge(["build", "keep/dev", "--output", "json"])
                .run()
                .expect(0)
                .json();
            let changed: Vec<_> = built["resources"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|resource| resource["attributes"]["data"]["value"] == value.as_str())
                .map(|resource| {
                    resource["attributes"]["metadata"]["name"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                })
                .collect();
            assert_eq!(changed, std::slice::from_ref(&name));
        } else {
            assert_eq!(
                stage.monorepo.git(["status", "--porcelain"]),
                "",
                "{}",
                ended.stderr
            );
        }
        stage.monorepo.git(["checkout", "--quiet", "."]);
        stage.by_hand(&name, Some(&before)).await;
    }
    assert!(kept > 0, "no round was kept");
}

/// The value is the default of a schema, so no file sets it: the attribute is added to the one block where it has an
/// effect.
#[tokio::test(flavor = "multi_thread")]
async fn a_default_of_a_schema_is_set_in_the_stack_s_own_file() {
    let mut stage = Stage::small("").await;
    let object = |name: &str, value: &str| {
        format!(
            "    {{id = \"v1:ConfigMap:default:{name}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{name}\", namespace = \"default\"}}, data = {{value = {value}}}}}}}\n"
        )
    };
    // One has the attribute, two have the same one, and one has none.
    let program = format!(
        "schema Server:\n    name: str\n    value: str = \"default\"\n\nschema Other:\n    name: str\n\n\
         _one = Server {{\n    name = \"one\"\n}}\n_two = Server {{\n    name = \"two\"\n}}\n_other = Other {{\n    name = \"three\"\n}}\nresources = [\n{}{}{}{}]\n",
        object("default-one", "_one.value"),
        object("default-two", "_two.value"),
        object("default-both", "_two.value"),
        object("default-none", "\"${_other.name}-computed\"")
    );
    stage.reviewed(7, "keep", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "keep/dev", &program)
    });
    stage.merge(7, "keep").outcome.check(0);
    stage.monorepo.checkout("main");
    let before = stage.monorepo.read(MAIN);
    stage.by_hand("default-one", Some("by hand")).await;
    keep(&stage).expect(0);
    assert_eq!(
        stage.monorepo.read(MAIN),
        before.replace(
            "    name = \"one\"\n",
            "    name = \"one\"\n    value = \"by hand\"\n"
        )
    );
    stage.monorepo.git(["checkout", "--quiet", "."]);
    stage.by_hand("default-one", Some("default")).await;
    // It would change another object too; and nothing has the name.
    for (map, value) in [("default-two", "default"), ("default-none", "three-computed")] {
        stage.by_hand(map, Some("by hand")).await;
        let refused = keep(&stage).expect(1);
        let says = format!("sets the value of v1:ConfigMap:default:{map}");
        assert!(refused.stderr.contains(&says), "{}", refused.stderr);
        assert_eq!(stage.monorepo.git(["status", "--porcelain"]), "");
        stage.by_hand(map, Some(value)).await;
    }
}
