//! An identity that changes because other folders got or lost the same names, or because konverge.yaml names it: what
//! is recorded follows the folder, and no object is deleted or made again.

use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, objects::Objects};

const A: &str = "appops/twin-a/dev";
const B: &str = "appops/twin-b/dev";

struct Twins(Stage);

impl Twins {
    /// Writes the stack in a folder; the projects of both have the name `twin`.
    fn write(stage: &Stage, folder: &str, maps: &[(&str, &str)]) {
        let project = folder.split('/').nth(1).unwrap();
        stage.stack(&format!("{project}/dev"), maps);
        stage
            .monorepo
            .write(&format!("appops/{project}/project.yaml"), "name: twin\n");
    }

    async fn live(&self, name: &str) -> Option<Value> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        Objects::of(self.0.cluster).await.get(&map).await
    }

    async fn uid(&self, name: &str) -> Value {
        self.live(name).await.expect("it is there")["metadata"]["uid"].clone()
    }

    async fn owner(&self, name: &str) -> String {
        let live = self.live(name).await.expect("it is there");
        live["metadata"]["annotations"]["konverge/stack"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The identities of which something is recorded.
    fn recorded(&self) -> Vec<String> {
        let listed = self.0.state(&["list", "--output", "json"]).expect(0).json();
        let stacks = listed["stacks"].as_array().unwrap().iter();
        stacks
            .map(|stack| stack["stack"].as_str().unwrap().to_owned())
            .collect()
    }

    /// A pull request is previewed and merged; its summary.
    fn merged(&mut self, number: u64, change: impl FnOnce(&Stage)) -> String {
        let branch = format!("change-{number}");
        let (_, ran) = self.0.reviewed(number, &branch, change);
        self.0.merge(number, &branch).outcome.check(0);
        // Nothing is left to do.
        let again = self.0.again();
        again.outcome.check(0);
        assert!(
            again.outcome.stdout.contains("0 stacks:"),
            "{}",
            again.outcome.stdout
        );
        ran.summary
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_recorded_follows_the_folder_when_an_identity_changes() {
    let mut twins = Twins(Stage::small("").await);
    twins.merged(1, |stage| {
        Twins::write(stage, A, &[("twin-a", "one"), ("twin-gone", "one")])
    });
    let uid = twins.uid("twin-a").await;
    assert_eq!(twins.recorded(), ["twin/dev"]);
    assert_eq!(twins.owner("twin-a").await, "twin/dev");

    // A clash comes.
    let shown = twins.merged(2, |stage| Twins::write(stage, B, &[("twin-b", "one")]));
    assert!(shown.contains(A) && shown.contains(B), "{shown}");
    assert_eq!(twins.uid("twin-a").await, uid);
    assert_eq!(twins.recorded(), [A, B]);
    assert_eq!(
        (twins.owner("twin-a").await, twins.owner("twin-b").await),
        (A.to_owned(), B.to_owned())
    );

    // One of the two is named, which ends the clash; in the same change it lets go of an object.
    let uid_b = twins.uid("twin-b").await;
    twins.merged(3, |stage| {
        stage.configure(&format!("stacks: [{{match: {A}, identity: first/dev}}]\n"));
        Twins::write(stage, A, &[("twin-a", "two")]);
    });
    assert_eq!(
        (twins.uid("twin-a").await, twins.uid("twin-b").await),
        (uid.clone(), uid_b)
    );
    assert!(
        twins.live("twin-gone").await.is_none(),
        "it was deleted, not forgotten"
    );
    assert_eq!(twins.recorded(), ["first/dev", "twin/dev"]);
    assert_eq!(twins.owner("twin-a").await, "first/dev");
    assert_eq!(twins.owner("twin-b").await, "twin/dev");

    // The name is taken back: there is a clash again. Then it goes with one of the two.
    twins.merged(4, |stage| stage.configure(""));
    assert_eq!(twins.recorded(), [A, B]);
    twins.merged(5, |stage| {
        stage.monorepo.remove("appops/twin-b");
    });
    assert_eq!(twins.uid("twin-a").await, uid);
    assert!(twins.live("twin-b").await.is_none());
    assert_eq!(twins.recorded(), ["twin/dev"]);
    assert_eq!(twins.owner("twin-a").await, "twin/dev");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excluded_folder_keeps_what_was_applied_from_it() {
    let mut twins = Twins(Stage::small("").await);
    twins.merged(1, |stage| {
        Twins::write(stage, "appops/kept-out/dev", &[("kept-out", "one")])
    });
    let uid = twins.uid("kept-out").await;
    twins.merged(2, |stage| stage.configure("exclude: [appops/kept-out]\n"));
    assert_eq!(twins.uid("kept-out").await, uid);
    assert_eq!(twins.recorded(), ["twin/dev"]);
}

/// A state that a build recorded which took `no` for `false` and `1.10` for `1.1`.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_recorded_under_the_earlier_reading_of_a_name_goes_on() {
    let mut twins = Twins(Stage::small("").await);
    // With quotes the names are what those builds read, so the state is theirs.
    let names = |stage: &Stage, stack: &str, project: &str| {
        stage.stack("norway/dev", &[("norway-map", "one"), ("norway-old", "one")]);
        stage
            .monorepo
            .write("appops/norway/dev/stack.yaml", format!("name: {stack}\n"));
        stage
            .monorepo
            .write("appops/norway/project.yaml", format!("name: {project}\n"));
    };
    twins.merged(1, |stage| names(stage, "'false'", "'1.1'"));
    let uid = twins.uid("norway-map").await;
    assert_eq!(twins.recorded(), ["1.1/false"]);

    // The file as those builds saw it. One object is dropped, which shows that the record is the same one.
    let shown = twins.merged(2, |stage| {
        names(stage, "no", "1.10");
        stage.stack("norway/dev", &[("norway-map", "two")]);
        stage.monorepo.write("appops/norway/dev/stack.yaml", "name: no\n");
        stage.monorepo.write("appops/norway/project.yaml", "name: 1.10\n");
    });
    assert!(
        shown.contains("1.10/no") && shown.contains("1.1/false"),
        "{shown}"
    );
    assert_eq!(twins.uid("norway-map").await, uid);
    assert!(
        twins.live("norway-old").await.is_none(),
        "it was deleted, not forgotten"
    );
    assert_eq!(twins.recorded(), ["1.10/no"]);
    assert_eq!(twins.owner("norway-map").await, "1.10/no");
}
