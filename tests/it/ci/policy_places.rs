//! Where policy sets and exceptions hold: in folders, whatever a stack calls itself. GitHub is played by the fake, the
//! API server is real.

use serde_json::Value;

use super::policy::stopped;
use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
};

const RULES: &str = "package main\n\ndeny contains sprintf(\"%s holds a forbidden value\", [input.metadata.name]) if input.data.value == \"bad\"\n";

async fn stage(policy: &str) -> Stage {
    let stage = Stage::small(policy).await;
    stage
        .monorepo
        .write("ops/policy/maps.rego", RULES)
        .commit("Rules");
    stage
}

/// Gives the stack of a folder, and its project, other names.
fn rename(monorepo: &Repository, folder: &str, id: &str) {
    let (project, name) = id.split_once('/').unwrap();
    let (project_folder, _) = folder.rsplit_once('/').unwrap();
    monorepo
        .write(
            &format!("{project_folder}/project.yaml"),
            format!("name: {project}\n"),
        )
        .write(&format!("{folder}/stack.yaml"), format!("name: {name}\n"));
}

fn findings(ran: &Ran) -> Vec<Value> {
    let text = std::fs::read_to_string(ran.output("result-path")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    result["findings"].as_array().unwrap().clone()
}

/// A stack in the folder of the exception passes by whatever name. One in another folder does not, not even under the
/// name that the exception has.
#[tokio::test(flavor = "multi_thread")]
async fn an_exception_is_not_claimed_by_the_name_of_a_stack() {
    let exceptions: String = ["appops/oldest/*", "legacy/*"]
        .map(|stacks| {
            format!("  - {{set: maps, resource: '*:places-*', stacks: '{stacks}', until: 2999-01-01, reason: the vendor}}\n")
        })
        .concat();
    let policy = format!(
        "policy:\n  sets:\n  - {{name: maps, path: ops/policy, input: objects}}\n  exceptions:\n{exceptions}"
    );
    let mut stage = stage(&policy).await;
    stage.reviewed(7, "old", |stage| {
        stage.stack("oldest/dev", &[("places-old", "bad")]);
        rename(&stage.monorepo, "appops/oldest/dev", "other/prod");
    });
    stage.merge(7, "old").outcome.check(0);
    assert_eq!(stage.value("places-old").await.as_deref(), Some("bad"));

    for (at, (folder, name, is_told)) in [("newest", "legacy/prod", true), ("younger", "oldest/dev", false)]
        .into_iter()
        .enumerate()
    {
        let (number, branch, map) = (8 + at as u64, format!("claims-{at}"), format!("places-{at}"));
        let (_, previewed) = stage.reviewed(number, &branch, |stage| {
            stage.stack(&format!("{folder}/dev"), &[(&map, "bad")]);
            rename(&stage.monorepo, &format!("appops/{folder}/dev"), name);
        });
        let found = findings(&previewed);
        assert_eq!(found[0]["verdict"], "deny", "{name}: {found:?}");
        assert_eq!(found[0]["stack"], name, "{found:?}");
        // Someone who wrote an identity is told what to write.
        let hint = found[0]["hint"].as_str().unwrap_or_default();
        let folder = format!("write its folder (`appops/{folder}/dev`)");
        assert_eq!(hint.contains(&folder), is_told, "{name}: {hint}");
        let merged = stage.merge(number, &branch);
        stopped(&stage, &merged, &map, &["holds a forbidden value"]).await;
    }
}

/// The pull request chooses the stack of an object: the set goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_follows_an_object_that_leaves_its_stacks() {
    let policy =
        "policy:\n  sets:\n  - {name: maps, path: ops/policy, input: objects, stacks: 'appops/*/prod'}\n";
    let mut stage = stage(policy).await;
    stage.reviewed(7, "before", |stage| {
        stage.stack(
            "leaves/prod",
            &[("places-moves", "good"), ("places-stays", "good")],
        );
    });
    stage.merge(7, "before").outcome.check(0);
    let (_, previewed) = stage.reviewed(8, "moves", |stage| {
        stage.stack("leaves/prod", &[("places-stays", "good")]);
        stage.stack("comes/dev", &[("places-moves", "bad")]);
    });
    let found = findings(&previewed);
    let [denied, told] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (&denied["verdict"], &denied["stack"]),
        (&"deny".into(), &"comes/dev".into())
    );
    let words =
        "rules for `appops/leaves/prod`, an earlier name of this stack, still apply to it: the set `maps`";
    assert_eq!(
        (&told["rule"], &told["message"]),
        (&"policy.names".into(), &words.into())
    );
    let merged = stage.merge(8, "moves");
    merged.outcome.check(3);
    assert_eq!(stage.value("places-moves").await.as_deref(), Some("good"));
    // It is refused in the next run, too, though the other stack has given it up by then.
    stage.again().outcome.check(3);
    assert_eq!(stage.value("places-moves").await.as_deref(), Some("good"));
}
