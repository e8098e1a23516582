//! A resource that another stack claims moves there: it is never deleted, whichever of the two comes first, and nobody
//! takes what its owner still wants.

use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, objects::Objects, process::Outcome};

/// Two stacks of one test.
struct Pair {
    stage: Stage,
    from: String,
    to: String,
    map: String,
    uid: Value,
}

impl Pair {
    /// `from` has made the ConfigMap; `to` has made another one. `more` is added to konverge.yaml; `FROM` and `TO` in
    /// it are the folders of the two.
    async fn applied(name: &str, more: &str) -> Self {
        let (from, to) = (format!("{name}-from/dev"), format!("{name}-to/dev"));
        let more = more.replace("FROM", &format!("appops/{from}"));
        let more = more.replace("TO", &format!("appops/{to}"));
        let mut pair = Self {
            stage: Stage::small("").await,
            map: format!("{name}-moved"),
            from,
            to,
            uid: Value::Null,
        };
        let (from, to) = (pair.from.clone(), pair.to.clone());
        let (moved, other) = (pair.map.clone(), pair.other());
        pair.stage.reviewed(1, "made", |stage| {
            stage.stack(&from, &[(&moved, "one")]);
            stage.stack(&to, &[(&other, "one")]);
        });
        pair.stage.merge(1, "made").outcome.check(0);
        pair.stage.monorepo.checkout("main");
        pair.stage.configure(&more);
        pair.stage.monorepo.commit("Rules");
        pair.uid = pair.live().await["metadata"]["uid"].clone();
        pair
    }

    fn other(&self) -> String {
        format!("{}-other", self.map)
    }

    fn left(&self) -> String {
        format!("{}-left", self.map)
    }

    /// Writes both stacks with the ConfigMap in `to`, and another one in `from`.
    fn moved(&self, stage: &Stage) {
        stage.stack(&self.from, &[(&self.left(), "one")]);
        stage.stack(&self.to, &[(&self.map, "two"), (&self.other(), "one")]);
    }

    /// The same as a reviewed pull request; answers its summary.
    fn move_reviewed(&mut self, number: u64) -> String {
        let (from, to, map) = (self.from.clone(), self.to.clone(), self.map.clone());
        let (left, other) = (self.left(), self.other());
        let (_, ran) = self.stage.reviewed(number, "move", |stage| {
            stage.stack(&from, &[(&left, "one")]);
            stage.stack(&to, &[(&map, "two"), (&other, "one")]);
        });
        ran.summary
    }

    async fn live(&self) -> Value {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.map, "namespace": "default"}});
        let objects = Objects::of(self.stage.cluster).await;
        objects.get(&map).await.expect("it is never deleted")
    }

    /// The object is the one that `from` made; who owns it, and its value.
    async fn owner(&self) -> (String, String) {
        let live = self.live().await;
        assert_eq!(live["metadata"]["uid"], self.uid, "it was recreated");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (
            text(&live["metadata"]["annotations"]["konverge/stack"]),
            text(&live["data"]["value"]),
        )
    }

    async fn assert_owner(&self, owner: &str, value: &str) {
        assert_eq!(self.owner().await, (owner.to_owned(), value.to_owned()));
    }

    /// Whether a stack's state holds the ConfigMap.
    fn records(&self, stack: &str) -> bool {
        let state = self.stage.state(&["show", stack, "--output", "json"]);
        state
            .stdout
            .contains(&format!("v1:ConfigMap:default:{}\"", self.map))
    }

    /// A command on the working tree as it is.
    fn by_hand(&self, arguments: &[&str]) -> Outcome {
        let konverge = self.stage.konverge(arguments.iter().copied());
        konverge.dir(self.stage.monorepo.path()).run()
    }
}

async fn moves(name: &str, more: &str) {
    moves_reviewed(Pair::applied(name, more).await).await;
}

async fn moves_reviewed(mut pair: Pair) {
    let shown = pair.move_reviewed(2);
    let (from, to) = (pair.from.clone(), pair.to.clone());
    assert!(
        shown.contains(&format!("it moves to stack `{to}`: nothing is deleted")),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("it moves here from stack `{from}`")),
        "{shown}"
    );
    pair.assert_owner(&from, "one").await;

    pair.stage.merge(2, "move").outcome.check(0);
    pair.assert_owner(&to, "two").await;
    assert!(!pair.records(&from) && pair.records(&to));
    let again = pair.stage.again();
    again.outcome.check(0);
    let said = &again.outcome.stdout;
    assert!(said.contains("0 stacks:"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_moves_with_one_pull_request() {
    moves("move", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_moves_when_the_one_that_lets_go_comes_first() {
    moves("move-go", "stacks:\n- {match: 'TO', after: ['FROM']}\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_moves_when_the_one_that_claims_comes_first() {
    moves("move-claim", "stacks:\n- {match: 'FROM', after: ['TO']}\n").await;
}

/// Protection is from being deleted, and nothing is.
#[tokio::test(flavor = "multi_thread")]
async fn a_protected_resource_moves_and_is_still_not_deleted() {
    let pair = Pair::applied("move-protected", "").await;
    let protect = json!({"metadata": {"annotations": {"konverge/protect": "true"}}});
    let objects = Objects::of(pair.stage.cluster).await;
    objects.merge(&pair.live().await, "somebody", &protect).await;
    pair.stage.monorepo.checkout("main").branch("dropped");
    pair.stage.stack(&pair.from, &[(&pair.left(), "one")]);
    pair.stage.monorepo.commit("dropped");
    let refused = pair.by_hand(&["apply", &pair.from, "--yes"]);
    refused.check(3);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(
        said.contains("its annotation `konverge/protect` forbids it"),
        "{said}"
    );
    pair.assert_owner(&pair.from, "one").await;
    pair.stage.monorepo.checkout("main");
    moves_reviewed(pair).await;
}

/// An approval is missing: nothing is lost, and what was reviewed is done once it may go on.
async fn moves_in_two_steps(name: &str, stopped: &str) {
    let rule = format!("stacks:\n- {{match: '{stopped}', policy: {{approvals: 1}}}}\n");
    let mut pair = Pair::applied(name, &rule).await;
    pair.move_reviewed(2);
    pair.stage.merge(2, "move").outcome.check(3);
    pair.assert_owner(&pair.from, "one").await;

    let head = pair.stage.monorepo.rev("move");
    pair.stage.approved_by(2, "grace", &head);
    pair.stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        world.collaborators.insert("grace".into(), "write");
    });
    pair.stage.again().outcome.check(0);
    pair.assert_owner(&pair.to, "two").await;
    assert!(!pair.records(&pair.from) && pair.records(&pair.to));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_outlives_the_time_when_only_its_owner_let_go() {
    moves_in_two_steps("move-gone", "TO").await;
}

/// The rules of the stack that it comes from hold for the one that takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_moves_waits_for_the_approval_of_its_owner() {
    moves_in_two_steps("move-taken", "FROM").await;
}

/// What the owner's stack is told to do by hand before the other is applied.
async fn moves_by_hand(name: &str, owner_does: &str) {
    let pair = Pair::applied(name, "").await;
    pair.stage.monorepo.checkout("main").branch("move");
    pair.moved(&pair.stage);
    pair.stage.monorepo.commit("move");
    pair.by_hand(&[owner_does, &pair.from, "--yes"]).check(0);
    pair.assert_owner(&pair.from, "one").await;
    pair.by_hand(&["apply", &pair.to, "--yes"]).check(0);
    pair.assert_owner(&pair.to, "two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_moves_by_hand_one_stack_after_the_other() {
    moves_by_hand("move-hand", "apply").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_stack_leaves_what_another_claims() {
    moves_by_hand("move-end", "destroy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_what_its_owner_still_wants() {
    let mut pair = Pair::applied("move-theft", "").await;
    let (from, to, map) = (pair.from.clone(), pair.to.clone(), pair.map.clone());
    let refusal = format!("belongs to stack `{from}`");
    let refused = |ran: &Outcome| {
        assert_ne!(ran.code, Some(0), "{}", ran.stdout);
        assert!(
            format!("{}{}", ran.stdout, ran.stderr).contains(&refusal),
            "{}",
            ran.stdout
        );
    };
    // The owner is not part of the change; then it is, and still wants it.
    pair.stage.monorepo.checkout("main").branch("theft");
    pair.stage.stack(&to, &[(&map, "stolen")]);
    pair.stage.monorepo.commit("theft");
    refused(&pair.stage.pull_request(2, "theft", "opened").outcome);
    refused(&pair.by_hand(&["apply", &to, "--yes"]));
    pair.stage.stack(&from, &[(&map, "one"), (&pair.left(), "one")]);
    pair.stage.monorepo.commit("theft of what is still wanted");
    refused(&pair.stage.pull_request(2, "theft", "synchronize").outcome);
    refused(&pair.by_hand(&["apply", &from, &to, "--yes"]));
    pair.assert_owner(&from, "one").await;

    // A revision that is older than what the owner has made says nothing of it.
    pair.stage.monorepo.checkout("main").branch("stale");
    let more = pair.left();
    pair.stage.reviewed(3, "more", |stage| {
        stage.stack(&from, &[(&map, "one"), (&more, "one")]);
    });
    pair.stage.merge(3, "more").outcome.check(0);
    pair.stage.monorepo.checkout("stale");
    pair.stage.stack(&to, &[(&more, "stolen")]);
    pair.stage.monorepo.commit("stale");
    refused(&pair.by_hand(&["apply", &to, "--yes"]));
    assert_eq!(pair.stage.value(&more).await.as_deref(), Some("one"));
}
