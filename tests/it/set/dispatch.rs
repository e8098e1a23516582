//! `--dispatch`: an edit that another repository asks for. Only what the default branch allows, only for a caller that
//! proves who it is, and only once.

use serde_json::{Value, json};

use crate::support::{
    git::Repository,
    github::{FakeGithub, World},
    job_tokens::JobTokens,
    process::{Konverge, Outcome},
};

const IMAGE: &str = "ghcr.io/example/storefront";

struct Stand {
    repository: Repository,
    github: FakeGithub,
    issuer: JobTokens,
    scratch: tempfile::TempDir,
}

/// A request of the service's pipeline.
struct Request {
    stack: &'static str,
    image: &'static str,
    digest: String,
}

impl Request {
    fn new(letter: char) -> Self {
        Self {
            stack: "storefront/dev",
            image: IMAGE,
            digest: format!("sha256:{}", letter.to_string().repeat(64)),
        }
    }

    fn audience(&self) -> String {
        konverge_cloud::bound_audience(
            "konverge-set",
            &["acme/konfig", self.stack, self.image, &self.digest],
        )
    }
}

impl Stand {
    async fn new(rules: &str) -> Self {
        let repository = Repository::konfig_example();
        let scratch = tempfile::tempdir().unwrap();
        let store = scratch.path().join("store");
        std::fs::create_dir_all(&store).unwrap();
        let config = repository.read("konverge.yaml");
        repository.write(
            "konverge.yaml",
            format!(
                "{config}\nstate: {{id: set-test, url: 'file://{}'}}\n{rules}",
                store.display()
            ),
        );
        repository.commit("Rules");
        let mut world = World::of(&repository).with_app("konverge-app[bot]");
        for token in world.tokens.values_mut() {
            token.permissions.insert("contents", "write");
        }
        Self {
            repository,
            github: FakeGithub::start(world).await,
            issuer: JobTokens::start().await,
            scratch,
        }
    }

    fn ask(&self, request: &Request, token: &str) -> Outcome {
        let payload = json!({
            "action": "konverge-set", "branch": "main",
            "client_payload": {"stack": request.stack, "image": request.image, "digest": request.digest, "token": token},
            "repository": {"full_name": "acme/konfig", "default_branch": "main"},
        });
        self.run("repository_dispatch", &payload)
    }

    fn run(&self, event: &str, payload: &Value) -> Outcome {
        let file = self.scratch.path().join("event.json");
        std::fs::write(&file, payload.to_string()).unwrap();
        Konverge::new(["set", "--dispatch", "--pull-request"])
            .dir(self.repository.path())
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_EVENT_PATH", &file)
            .env("GITHUB_SHA", self.repository.rev("main"))
            .env("GITHUB_REF", "refs/heads/main")
            .env("GITHUB_SERVER_URL", &self.issuer.server_url)
            .env("GITHUB_API_URL", self.github.api_url())
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_TOKEN", "ghs_app")
            .with_kcl()
            .run()
    }

    fn token(&self, request: &Request, id: &str) -> String {
        self.issuer
            .sign(&self.issuer.claims("acme/storefront", &request.audience(), id))
    }

    fn pulls(&self) -> usize {
        self.github.world(|world| world.pulls.len())
    }
}

const RULES: &str =
    "set: {allow: [{stacks: 'appops/storefront/*', paths: [server.image], from: [acme/storefront]}]}\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_caller_gets_one_pull_request_and_its_token_counts_once() {
    let stand = Stand::new(RULES).await;
    let (first, second) = (Request::new('a'), Request::new('b'));
    let token = stand.token(&first, "token-1");
    stand.ask(&first, &token).expect(0);
    assert_eq!(stand.pulls(), 1);
    let branch = stand.github.world(|world| world.pulls[0].branch.clone());
    let file = || {
        stand
            .repository
            .git(["show", &format!("{branch}:appops/storefront/dev/main.k")])
    };
    assert!(file().contains(&format!("{IMAGE}@{}", first.digest)));
    let said = stand.ask(&second, &stand.token(&second, "token-2")).expect(0);
    assert!(!said.stdout.contains(&token) && !said.stderr.contains(&token));
    assert!(file().contains(&second.digest));
    // The older token would put the older image back.
    let replayed = stand.ask(&first, &token).expect(3);
    assert!(replayed.stderr.contains("was used before"), "{}", replayed.stderr);
    assert!(file().contains(&second.digest));
    assert_eq!(stand.pulls(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_named_or_proves_nothing_gets_nothing() {
    let stand = Stand::new(RULES).await;
    let request = Request::new('a');
    let claims = |change: &[(&str, Value)]| {
        let mut claims = stand
            .issuer
            .claims("acme/storefront", &request.audience(), "token");
        for (key, value) in change {
            claims[*key] = value.clone();
        }
        claims
    };
    let refuse = |token: &str, words: &str| {
        let ended = stand.ask(&request, token).expect(3);
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    };
    refuse(&stand.issuer.forge(&claims(&[])), "the caller is unknown");
    refuse("no token", "the caller is unknown");
    for change in [
        ("exp", json!(1_600_000_000)),
        ("nbf", json!(4_000_000_000_u64)),
        ("aud", json!("konverge-set")),
        ("aud", json!(Request::new('b').audience())),
        ("iss", json!("https://token.actions.githubusercontent.com")),
    ] {
        refuse(&stand.issuer.sign(&claims(&[change])), "the caller is unknown");
    }
    // `none` and a symmetric algorithm are no signatures.
    let parts = stand.issuer.sign(&claims(&[]));
    let payload = parts.split('.').nth(1).unwrap();
    refuse(
        &format!("eyJhbGciOiJub25lIiwia2lkIjoia2V5LTEifQ.{payload}."),
        "the caller is unknown",
    );
    // Another repository, and a stack that no rule names; a stack that does not exist says the same.
    let other = stand.issuer.sign(&claims(&[("repository", json!("acme/other"))]));
    refuse(&other, "no rule of `set.allow` lets acme/other ask");
    for (stack, image) in [("orders/dev", "ghcr.io/example/orders"), ("nowhere/dev", IMAGE)] {
        let request = Request {
            stack,
            image,
            ..Request::new('a')
        };
        let ended = stand.ask(&request, &stand.token(&request, "token")).expect(3);
        assert!(
            ended.stderr.contains("no rule of `set.allow`"),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(stand.pulls(), 0);
    assert_eq!(stand.github.writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_named_attributes_are_set_and_other_events_are_refused() {
    let stand = Stand::new("set: {allow: [{stacks: 'appops/storefront/*', paths: [server.replicas], from: [acme/storefront]}]}\n").await;
    let request = Request::new('a');
    let ended = stand.ask(&request, &stand.token(&request, "token")).expect(3);
    assert!(
        ended.stderr.contains("set `server.image` of storefront/dev"),
        "{}",
        ended.stderr
    );
    // A pull request's edit of the rules grants nothing.
    stand.repository.branch("topic");
    stand
        .repository
        .replace("konverge.yaml", "server.replicas", "server.image");
    stand.repository.commit("More power");
    stand.ask(&request, &stand.token(&request, "token")).expect(3);
    stand.repository.checkout("main");
    for (event, payload) in [
        (
            "repository_dispatch",
            json!({"action": "konverge-apply", "client_payload": {}}),
        ),
        (
            "workflow_dispatch",
            json!({"ref": "refs/heads/main", "repository": {"default_branch": "main"}}),
        ),
        (
            "repository_dispatch",
            json!({"action": "konverge-set", "client_payload": {"stack": "a/b"}}),
        ),
    ] {
        stand.run(event, &payload).expect(64);
    }
    for wrong in [
        Request {
            stack: "no-stack",
            ..Request::new('a')
        },
        Request {
            image: "a b",
            ..Request::new('a')
        },
        Request {
            digest: "latest".to_owned(),
            ..Request::new('a')
        },
    ] {
        stand.ask(&wrong, &stand.token(&wrong, "token")).expect(64);
    }
    assert_eq!(stand.pulls(), 0);
}
