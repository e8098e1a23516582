//! `--pull-request`: one pull request for the same stacks and attributes, whatever happens between two calls.

use crate::support::{
    git::Repository,
    github::{Act, FakeGithub, World},
    process::{Konverge, Outcome},
};

const DEV: &str = "appops/storefront/dev/main.k";

pub(super) struct Stand {
    pub(super) repository: Repository,
    pub(super) github: FakeGithub,
}

impl Stand {
    pub(super) async fn new() -> Self {
        let repository = Repository::konfig_example();
        let mut world = World::of(&repository).with_app("konverge-app[bot]");
        for token in world.tokens.values_mut() {
            token.permissions.insert("contents", "write");
        }
        let github = FakeGithub::start(world).await;
        Self { repository, github }
    }

    pub(super) fn propose_as(&self, token: &str, arguments: &[&str]) -> Outcome {
        Konverge::new([&["set"], arguments, &["--pull-request"]].concat())
            .dir(self.repository.path())
            .env("GITHUB_API_URL", self.github.api_url())
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_TOKEN", token)
            .with_kcl()
            .run()
    }

    pub(super) fn propose(&self, tag: &str) -> Outcome {
        let image = format!("ghcr.io/example/storefront=ghcr.io/example/storefront:{tag}");
        self.propose_as("ghs_app", &["storefront/dev", "--image", &image])
    }

    pub(super) fn pulls(&self) -> Vec<(String, String)> {
        self.github.world(|world| {
            let pulls = world.pulls.iter();
            pulls
                .map(|pull| (pull.branch.clone(), pull.title.clone()))
                .collect()
        })
    }

    pub(super) fn branch(&self) -> String {
        self.pulls()[0].0.clone()
    }

    pub(super) fn file(&self) -> String {
        self.repository.git(["show", &format!("{}:{DEV}", self.branch())])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_calls_update_one_pull_request() {
    let stand = Stand::new().await;
    let before = stand.repository.git(["status", "--porcelain"]);
    let opened = stand.propose("2.5.0").expect(0);
    assert!(
        opened
            .stderr
            .contains("opened https://github.com/acme/konfig/pull/"),
        "{}",
        opened.stderr
    );
    assert!(stand.branch().starts_with("konverge/set-"));
    assert!(stand.file().contains("storefront:2.5.0"));
    assert_eq!(stand.repository.git(["status", "--porcelain"]), before);
    let same = stand.propose("2.5.0").expect(0);
    assert!(same.stderr.contains("proposes this already"), "{}", same.stderr);
    // The default branch moves on, and the value changes.
    stand.repository.write("README.md", "other");
    stand.repository.commit("Other");
    let updated = stand.propose("2.6.0").expect(0);
    assert!(updated.stderr.contains("updated"), "{}", updated.stderr);
    assert!(stand.file().contains("storefront:2.6.0"));
    let pulls = stand.pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    assert_eq!(
        pulls[0].1,
        "Set the image ghcr.io/example/storefront:2.6.0 of storefront/dev"
    );
    // The pull request brings the edit alone.
    let branch = stand.branch();
    let brought = stand
        .repository
        .git(["diff", "--name-only", &format!("main...{branch}")]);
    assert_eq!(brought, DEV);
    // Another stack has a pull request of its own.
    let image = "ghcr.io/example/storefront=ghcr.io/example/storefront:2.6.0";
    stand
        .propose_as("ghs_app", &["storefront/prod", "--image", image])
        .expect(0);
    assert_eq!(stand.pulls().len(), 2);
}

/// The branch stands for the attribute, whichever words found it, and whatever it is set to already.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_attribute_by_other_words_is_the_same_pull_request() {
    let stand = Stand::new().await;
    let propose = |arguments: &[&str]| stand.propose_as("ghs_app", arguments).expect(0);
    let count = |expected: usize| assert_eq!(stand.pulls().len(), expected, "{:?}", stand.pulls());
    stand.propose("2.5.0").expect(0);
    propose(&[
        "storefront/dev",
        "server.image=\"ghcr.io/example/storefront:2.6.0\"",
    ]);
    count(1);
    assert!(stand.file().contains("storefront:2.6.0"));
    // Two attributes, one of which the default branch gets meanwhile.
    let level = "server.env.LOG_LEVEL=\"info\"";
    let image = "ghcr.io/example/storefront=ghcr.io/example/storefront:2.7.0";
    propose(&["storefront/dev", "--image", image, level]);
    count(2);
    stand
        .repository
        .replace(DEV, "storefront:2.4.0-rc.1", "storefront:2.7.0");
    stand.repository.commit("The image");
    propose(&[
        "storefront/dev",
        "--image",
        image,
        "server.env.LOG_LEVEL=\"warning\"",
    ]);
    count(2);
    let text = "server.image=\"ghcr.io/example/storefront:2.7.0\"";
    propose(&["storefront/dev", text, level]);
    count(2);
    // A base is the same for each of its stacks, and is not a stack.
    let delay = "server.liveness.delay=20";
    propose(&["storefront/dev", delay, "--in", "base"]);
    propose(&["storefront/prod", "server.liveness.delay=30", "--in", "base"]);
    count(3);
    propose(&["storefront/dev", delay]);
    count(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_others_on_the_branch_are_kept() {
    let stand = Stand::new().await;
    stand.propose("2.5.0").expect(0);
    let branch = stand.branch();
    stand.repository.checkout(&branch);
    stand.repository.write("by-hand.txt", "x");
    let by_hand = stand.repository.commit("By hand");
    stand.repository.checkout("main");
    let refused = stand.propose("2.6.0").expect(1);
    assert!(
        refused.stderr.contains("somebody else pushed") && refused.stderr.contains(&format!("{DEV}:8")),
        "{}",
        refused.stderr
    );
    assert_eq!(stand.repository.rev(&branch), by_hand);
    // One who copies our message does not own the tree.
    let message = stand
        .repository
        .git(["show", "--no-patch", "--format=%B", &format!("{branch}~1")]);
    stand.repository.checkout(&branch);
    stand
        .repository
        .git(["commit", "--quiet", "--amend", "-m", &message]);
    let forged = stand.repository.rev("HEAD");
    stand.repository.checkout("main");
    stand.propose("2.6.0").expect(1);
    assert_eq!(stand.repository.rev(&branch), forged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_moves_meanwhile_is_not_forced() {
    let stand = Stand::new().await;
    let refusal = serde_json::json!({"message": "Update is not a fast forward"});
    stand.propose("2.5.0").expect(0);
    let branch = stand.branch();
    let ours = stand.repository.rev(&branch);
    let route = format!("/git/refs/heads%2F{}", branch.replace('/', "%2F"));
    stand
        .github
        .next("PATCH", &route, Act::Answer(422, Vec::new(), refusal));
    let refused = stand.propose("2.6.0").expect(1);
    assert!(
        refused.stderr.contains("somebody else pushed"),
        "{}",
        refused.stderr
    );
    assert_eq!(stand.repository.rev(&branch), ours);
    // An answer that is lost is looked up.
    stand.github.next("PATCH", &route, Act::DropAfter);
    stand.github.next("POST", "/git/trees", Act::DropAfter);
    stand.propose("2.6.0").expect(0);
    assert_eq!(stand.pulls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pull_request_is_opened_again_for_another_value_only() {
    let stand = Stand::new().await;
    stand.propose("2.5.0").expect(0);
    stand.github.world(|world| world.pulls[0].closed = true);
    let closed = stand.propose("2.5.0").expect(0);
    assert!(closed.stderr.contains("somebody closed"), "{}", closed.stderr);
    assert_eq!(stand.pulls().len(), 1);
    stand.propose("2.6.0").expect(0);
    assert_eq!(stand.pulls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_token_may_not_and_what_is_not_published_is_said() {
    let stand = Stand::new().await;
    // GITHUB_TOKEN starts no preview.
    let arguments = ["storefront/dev", "server.env.LOG_LEVEL=\"info\""];
    let warned = stand.propose_as("ghs_token", &arguments).expect(0);
    assert!(
        warned.stderr.contains("it starts no preview"),
        "{}",
        warned.stderr
    );
    // Auto-merge, with and without the setting.
    let merge = ["storefront/dev", "server.env.LOG_LEVEL=\"info\"", "--auto-merge"];
    let refused = stand.propose_as("ghs_app", &merge).expect(1);
    assert!(refused.stderr.contains("allow auto-merge"), "{}", refused.stderr);
    stand.github.world(|world| world.allows_auto_merge = true);
    stand.propose_as("ghs_app", &merge).expect(0);
    assert!(stand.github.world(|world| world.pulls[0].auto_merge));
    // A token that may only read.
    stand.github.world(|world| {
        let app = world.tokens.get_mut("ghs_app").unwrap();
        app.permissions.insert("contents", "read");
    });
    let refused = stand.propose("2.7.0").expect(1);
    assert!(refused.stderr.contains("contents: write"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("{DEV}:8")), "{}", refused.stderr);
    assert_eq!(stand.repository.git(["status", "--porcelain"]), "");
    // Without a token, and from a commit that GitHub's default branch does not have.
    let alone = Konverge::new([
        "set",
        "storefront/dev",
        "server.env.LOG_LEVEL=\"x\"",
        "--pull-request",
    ]);
    alone.dir(stand.repository.path()).with_kcl().run().expect(64);
    stand.repository.branch("topic");
    stand.repository.write("more", "x");
    stand.repository.commit("Not on main");
    let refused = stand.propose("2.7.0").expect(1);
    assert!(
        refused.stderr.contains("is not on GitHub's branch `main`"),
        "{}",
        refused.stderr
    );
    // What the default branch has already needs no pull request.
    stand.repository.checkout("main");
    let nothing = stand.propose("2.4.0-rc.1").expect(0);
    assert!(
        nothing.stderr.contains("nothing to propose"),
        "{}",
        nothing.stderr
    );
    assert_eq!(stand.pulls().len(), 1);
}
