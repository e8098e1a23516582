//! The comment: as reviewers see it (golden files), and what holds for any input (properties).
//!
//! `UPDATE_GOLDEN=1 cargo test --test it comment::` writes the golden files; look at the difference before committing.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, RepoPath,
        affected::InputChange,
        apply_result::{ApplyReport, ResourceOutcome, ResourceResult, StackOutcome, StackResult},
        authorization::Authorization,
        plan::{Action, ChangeOrigin},
        policy_finding::Enforcement,
    },
};
use konverge_report::{COMMENT_BUDGET, Merging, html, markdown, terminal};
use serde_json::json;

use crate::support::{
    golden::golden,
    sample_plans::{self, Sample},
};

#[test]
fn everything_once() {
    let shop = sample_plans::shop();
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET));
    assert_eq!(comment.omitted, markdown::Omitted::default());
    assert!(!comment.body.contains("Not shown here"), "{}", comment.body);
    assert_eq!(comment.body.matches("[!CAUTION]").count(), 1, "one red box");
    golden("comment-shop.md", &comment.body);
    golden("comment-shop.html", &html::report(&shop.input(0)));
    golden(
        "terminal-shop.txt",
        &terminal::plan(&shop.plan, terminal::Style::default()),
    );
}

#[test]
fn nothing_affected() {
    let mut shop = sample_plans::shop();
    shop.plan.stacks.clear();
    shop.affected.stacks.clear();
    shop.findings.clear();
    golden(
        "comment-nothing.md",
        &markdown::comment(&shop.input(COMMENT_BUDGET)).body,
    );
}

#[test]
fn a_fork() {
    let mut shop = sample_plans::shop();
    shop.mode.merging = Merging::Outside;
    shop.mode.superseded = true;
    shop.plan.stacks.retain(|s| s.error.is_none());
    golden(
        "comment-fork.md",
        &markdown::comment(&shop.input(COMMENT_BUDGET)).body,
    );
}

#[test]
fn a_stack_that_fails_in_part_shows_the_rest() {
    let id = "hashicorp:aws:aws_db_instance:orders";
    let mut shop = sample_plans::shop();
    shop.findings.clear();
    shop.plan
        .stacks
        .retain(|stack| stack.id.as_str() == "search/dev" || stack.error.is_none());
    let stack = shop
        .plan
        .stacks
        .iter_mut()
        .find(|stack| stack.error.is_some())
        .unwrap();
    let map = sample_plans::resource("search/dev", "v1:ConfigMap:search:words", Action::Create, vec![]);
    let error = stack.error.take();
    *stack = sample_plans::stack("search/dev", vec![map]);
    stack.error = error;
    stack.held_back = vec![id.parse().unwrap()];
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    let page = html::report(&shop.input(0));
    let log = terminal::plan(&shop.plan, terminal::Style::default());
    let check = konverge_report::checks::checks(&shop.plan, 50, "").remove(0);
    let rest = "skip 1 resource";
    for (place, text) in [
        ("comment", &comment),
        ("page", &page),
        ("log", &log),
        ("check", &check.summary),
    ] {
        assert!(text.contains(rest), "{place}: {text}");
    }
    for (place, text) in [("comment", &comment), ("page", &page), ("check", &check.summary)] {
        assert!(text.contains("could not be planned in full"), "{place}: {text}");
    }
    for (place, text) in [
        ("log", &log),
        ("check", &check.text),
        ("page", &page),
        ("comment", &comment),
    ] {
        assert!(text.contains("search/words"), "{place}: {text}");
    }
    assert!(comment.contains("**failed in part** 1 to create"), "{comment}");
    assert!(
        comment.contains("**Merging** applies what could be planned."),
        "{comment}"
    );
    shop.mode.merging = Merging::NoStore;
    let comment = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    assert!(!comment.contains("applies what could be planned"), "{comment}");
}

#[test]
fn two_thousand_stacks_fit_and_lose_no_alert() {
    let large = sample_plans::large(2_000);
    let comment = markdown::comment(&large.input(COMMENT_BUDGET));
    assert!(comment.body.len() <= COMMENT_BUDGET, "{}", comment.body.len());
    for stack in large.plan.stacks.iter().filter(|s| s.summary.delete > 0) {
        let line = format!(
            "delete `Service {}/old` in `{}`",
            stack.id.as_str().replace('/', "-"),
            stack.id
        );
        assert!(comment.body.contains(&line), "{line}");
    }
    assert!(comment.body.contains("Same change in 2000 stacks"));
    golden("comment-large.md", &comment.body);
}

/// A change of its own in each stack but some, so that no group takes the room of many.
fn distinct(n: usize) -> Sample {
    let mut shop = sample_plans::large(n);
    for (at, stack) in shop.plan.stacks.iter_mut().enumerate() {
        let name = stack.id.to_string();
        let text = |value: usize| {
            let line = |line: usize| format!("setting {line} is {}\n", if line == 6 { value } else { at });
            Some(json!((1..=12).map(line).collect::<String>()))
        };
        let change = sample_plans::change("/data/conf", text(at), text(at + 10_000), ChangeOrigin::Change);
        let id = format!("v1:ConfigMap:{}:own", name.replace('/', "-"));
        let mut resources = std::mem::take(&mut stack.resources);
        match at % 10 {
            9 => resources.clear(),
            _ => resources.push(sample_plans::resource(&name, &id, Action::Update, vec![change])),
        }
        *stack = sample_plans::stack(&name, resources);
    }
    shop
}

/// Whatever the budget: what is not in the comment is counted in its first lines, with the way to it, and dangerous
/// changes have their values before harmless ones are written out.
#[test]
fn what_is_left_out_is_counted_at_the_top() {
    let shop = distinct(60);
    for budget in (8..160).map(|at| at * 512) {
        let comment = markdown::comment(&shop.input(budget));
        let body = &comment.body;
        assert!(body.len() <= budget, "{budget}");
        assert!(body.contains("delete `Service"), "the alert stays at {budget}");
        let (mut hidden, mut unseen, mut unseen_updates, mut written_out) = (0, 0, 0, 0);
        for (at, stack) in shop.plan.stacks.iter().enumerate() {
            for resource in &stack.resources {
                let namespace = stack.id.as_str().replace('/', "-");
                let (name, value) = match resource.action {
                    Action::Update if resource.id.as_str().ends_with(":own") => (
                        format!("ConfigMap {namespace}/own`"),
                        format!("setting 6 is {}\n", at + 10_000),
                    ),
                    Action::Create => (
                        format!("ConfigMap {namespace}/settings"),
                        format!("value 39 of {}\n", stack.id),
                    ),
                    _ => continue,
                };
                let is_shown = body.contains(&value);
                hidden += usize::from(!body.contains(&name));
                unseen += usize::from(!is_shown);
                unseen_updates += usize::from(!is_shown && resource.action == Action::Update);
                written_out += usize::from(is_shown && resource.action == Action::Create);
            }
        }
        let omitted = comment.omitted;
        assert_eq!(
            (omitted.resources, omitted.values + omitted.resources),
            (hidden, unseen),
            "{budget}"
        );
        assert!(unseen_updates == 0 || written_out == 0, "{budget}");
        let top: String = body.lines().take(8).collect::<Vec<_>>().join("\n");
        let said = format!("the values of {} changed resource", omitted.values);
        assert_eq!(top.contains(&said), omitted.values > 0, "{budget}: {top:?}");
        let link = "All of it: [the job summary](https://github.com/acme/konfig/actions/runs/4711)";
        let is_cut = omitted != markdown::Omitted::default();
        assert_eq!(top.contains(link), is_cut, "{budget}: {top:?}");
        assert_eq!(body.contains("**Merging** applies exactly this."), unseen == 0);
        let digest = "**Merging** applies exactly what the digest `";
        assert_eq!(body.contains(digest), unseen > 0, "{budget}");
    }
}

/// A change that creates much, and one image that runs: its values are there whatever the room, and the rest is
/// counted.
#[test]
fn many_creates_do_not_hide_the_image_that_changes() {
    let sample = sample_plans::creates_beside_an_image();
    let creates = sample.plan.stacks.iter().map(|stack| stack.summary.create);
    assert_eq!(creates.sum::<usize>(), 76);
    for budget in [8_000, 20_000, COMMENT_BUDGET] {
        let comment = markdown::comment(&sample.input(budget));
        let body = &comment.body;
        for part in [
            "-          image: registry.example/base:1.4",
            "+          image: registry.example/base:1.5",
        ] {
            assert!(body.contains(part), "{budget}: {part}: {body}");
        }
        assert!(
            budget == COMMENT_BUDGET || body.contains("**Not shown here**"),
            "{body}"
        );
    }
    let comment = markdown::comment(&sample.input(COMMENT_BUDGET));
    assert!(comment.body.len() > COMMENT_BUDGET / 2, "{}", comment.body.len());
    assert_eq!(comment.omitted.resources, 0, "each creation is a line");
    let summary = markdown::summary(&sample.input(0), konverge_report::SUMMARY_BUDGET);
    assert_eq!(summary.omitted, markdown::Omitted::default());
}

#[test]
fn one_check_for_all_and_own_ones_for_what_is_grave() {
    let checks = |plan, most, scope| konverge_report::checks::checks(plan, most, scope);
    let plan = sample_plans::large(2_000).plan;
    let all = checks(&plan, 50, "");
    let grave = plan.stacks.iter().filter(|s| s.summary.delete > 0).count();
    assert_eq!(all.len(), grave + 1);
    assert_eq!(all[grave].name, "konverge: plan");
    assert_eq!(all[grave].title, "200 to create, 1980 to update in 1980 stacks");
    // Of a share there are fewer, and its rest is not another's.
    let of_share = checks(&plan, 7, "2/8");
    assert_eq!(of_share.len(), 7);
    assert_eq!(of_share[6].name, "konverge: plan 2/8");
    assert!(checks(&plan, 0, "60/256").is_empty());
    assert!(all[..grave].iter().all(|c| c.text.contains("delete")));
    assert!(all.iter().all(|c| c.text.len() <= 65_000));
    let shop = sample_plans::shop();
    let of_shop = checks(&shop.plan, 50, "");
    let names: Vec<_> = of_shop.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(
        names,
        ["konverge: search/dev", "konverge: media/prod", "konverge: plan"]
    );
    assert_eq!(of_shop[0].annotations[0].line, Some(12));
    // Drift is apart, and so are the diffs of each stack.
    let rest = &of_shop[2];
    assert_eq!(rest.title, "1 to create, 5 to update in 3 stacks");
    for part in [
        "`orders/prod`: 3 to update; 1 resource differs already",
        "Already different on the cluster",
        "+          image: registry.example/base:1.5",
    ] {
        assert!(rest.text.contains(part), "{part}: {}", rest.text);
    }
    assert_eq!(konverge_report::checks::annotations(&shop.plan).len(), 1);
}

/// A change of the base reads as one change, with names and fields, before everything else.
#[test]
fn forty_five_equal_changes_are_one() {
    let equal = sample_plans::equal(45);
    let body = markdown::comment(&equal.input(COMMENT_BUDGET)).body;
    assert!(
        body.contains("### Konverge preview: 45 to update\n\n45 of 140 stacks affected: 45 to change"),
        "{body}"
    );
    assert!(
        !body.contains("| Stack |") && !body.contains("| Project |"),
        "{body}"
    );
    assert_eq!(body.matches("```diff").count(), 1, "{body}");
    golden("comment-equal.md", &body);
    let one = markdown::comment(&sample_plans::equal(1).input(COMMENT_BUDGET)).body;
    golden("comment-one.md", &one);
}

/// Without a cluster the comment says what it cannot know, once, and warns by the published rules.
#[test]
fn a_preview_of_specs_says_what_it_cannot_know() {
    let specs = sample_plans::spec_only();
    let body = markdown::comment(&specs.input(COMMENT_BUDGET)).body;
    assert_eq!(body.matches("Not validated").count(), 1, "{body}");
    for part in [
        "1 resource will be deleted or replaced, with data or an address; 2 may have to be replaced",
        "`spec.selector.matchLabels.app` cannot be changed in place",
        "whether a change replaces a resource or deletes data",
        "with data or an address",
        "delete `PersistentVolumeClaim ns/data` in `b/dev`: **the volume's data may be deleted with the claim**",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    golden("comment-specs.md", &body);
    let page = html::report(&specs.input(0));
    assert!(
        page.contains("may have to be replaced") && page.contains("Not validated."),
        "{page}"
    );
}

/// What a push changed in the plan, and errors of several stacks once.
#[test]
fn a_push_is_compared_with_the_one_before_and_equal_errors_are_one() {
    let pushed = sample_plans::pushed();
    let body = markdown::comment(&pushed.input(COMMENT_BUDGET)).body;
    for part in [
        "<b>Since your last push</b> (<code>0123456</code>): 1 value changed, 1 resource reverted",
        "- edited: update `Deployment orders-dev/orders` in `orders/dev`: `spec.replicas = 3` (was `4`)",
        "- reverted: delete `ConfigMap orders-dev/old` in `orders/dev`",
        "`a/dev`, `b/dev`, `c/dev` could not be planned at `base/base.k:7`",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert_eq!(body.matches("attribute 'replica' not found").count(), 1, "{body}");
    golden("comment-pushed.md", &body);
}

/// The line that says what merging does.
fn merging_line(shop: &Sample) -> String {
    let body = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    let mut lines = body.lines().filter(|line| line.starts_with("**Merging**"));
    let line = lines.next().unwrap_or_default().to_owned();
    assert!(lines.next().is_none(), "{body}");
    line
}

#[test]
fn the_comment_says_what_merging_does() {
    let shop = sample_plans::shop();
    let plain = || {
        let mut plain = sample_plans::shop();
        plain.findings.clear();
        plain.plan.stacks.retain(|stack| stack.error.is_none());
        plain
    };
    let failed = || {
        let mut failed = plain();
        failed.plan.stacks.clone_from(&shop.plan.stacks);
        failed
    };
    let in_part = || {
        let mut in_part = failed();
        for stack in in_part
            .plan
            .stacks
            .iter_mut()
            .filter(|stack| stack.error.is_some())
        {
            stack.held_back = vec!["v1:ConfigMap:a:b".parse().unwrap()];
        }
        in_part
    };
    let denied = || {
        let mut denied = failed();
        denied.findings.clone_from(&shop.findings);
        assert!(denied.findings.iter().any(|f| f.verdict == Enforcement::Deny));
        denied
    };
    let nothing = || {
        let mut nothing = plain();
        nothing.plan.stacks.clear();
        nothing
    };
    for (merging, [of_plain, of_failed, of_in_part, of_denied]) in [
        (
            Merging::Applies,
            [
                "applies exactly this",
                "leaves out the failed stacks",
                "applies what could be planned",
                "`media/prod` will not be applied until the policies below are satisfied",
            ],
        ),
        (Merging::OtherBranch, ["a branch that is not deployed"; 4]),
        (Merging::NoStore, ["configures no store"; 4]),
        (Merging::Unreviewed, ["wait for an approval by digest"; 4]),
        (Merging::Outside, ["comes from outside"; 4]),
        (Merging::Queued, ["only Specs are compared"; 4]),
    ] {
        for (mut sample, said) in [
            (plain(), of_plain),
            (failed(), of_failed),
            (in_part(), of_in_part),
            (denied(), of_denied),
        ] {
            sample.mode.merging = merging;
            let line = merging_line(&sample);
            assert!(line.contains(said), "{merging:?}: {line}");
        }
    }
    let line = merging_line(&nothing());
    assert!(line.contains("makes no infrastructure changes"), "{line}");
}

/// What somebody else changed belongs to its stack, not to the group of equal changes, and is counted apart.
#[test]
fn drift_of_one_stack_is_not_that_of_a_group() {
    let mut equal = sample_plans::equal(3);
    let scaled = sample_plans::change(
        "/spec/replicas",
        Some(json!(9)),
        Some(json!(3)),
        ChangeOrigin::Drift,
    );
    let first = &mut equal.plan.stacks[0];
    let mut resources = std::mem::take(&mut first.resources);
    resources[0].changes.push(scaled.clone());
    let id = first.id.to_string();
    let by_hand = sample_plans::resource(&id, "apps/v1:Deployment:ns:by-hand", Action::Update, vec![scaled]);
    resources.push(by_hand);
    *first = sample_plans::stack(&id, resources);
    let page = html::report(&equal.input(0));
    let (group, stacks) = page.split_once("<h2>Stacks</h2>").unwrap();
    assert!(
        group.contains("in 3 stacks") && !group.contains("Already different"),
        "{page}"
    );
    assert!(
        stacks.contains("Already different on the cluster, not from this pull request"),
        "{page}"
    );
    let said = terminal::plan(&equal.plan, terminal::Style::default());
    assert!(
        said.contains("app-00/dev: 1 to update, 1 resource already different on the cluster\n"),
        "{said}"
    );
    assert!(
        said.ends_with("3 stacks: 3 to update, 1 resource already different on the cluster.\n"),
        "{said}"
    );
}

/// Affected stacks are those that change, those that stay and those that failed, and the comment adds them up.
#[test]
fn the_numbers_add_up() {
    let line = |sample: &Sample| {
        let body = markdown::comment(&sample.input(COMMENT_BUDGET)).body;
        let lines: Vec<_> = body.lines().filter(|line| line.contains(" affected: ")).collect();
        assert_eq!(lines.len(), 1, "{body}");
        lines[0].split(" · ").next().unwrap_or_default().to_owned()
    };
    let mut shop = sample_plans::shop();
    assert_eq!(
        line(&shop),
        "6 of 140 stacks affected: 4 to change (2 in production), 1 without changes, 1 failed"
    );
    for stack in &mut shop.plan.stacks {
        if stack.id.as_str() == "search/dev" {
            stack.fails_as_before = true;
        }
        // It only differs already, which the merge ends.
        if stack.id.as_str() == "orders/prod" {
            stack
                .resources
                .retain(|resource| resource.id.as_str().contains("Autoscaler"));
        }
    }
    assert_eq!(
        line(&shop),
        "6 of 140 stacks affected: 4 to change (2 in production), 1 without changes, 1 fails as before"
    );
    let body = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    let rows = body.lines().filter(|line| line.starts_with("| `orders/prod` |"));
    assert_eq!(rows.count(), 1, "{body}");
    assert!(body.contains("| 1 to restore |"), "{body}");
    assert!(
        body.contains(
            "2 to update, 1 to replace, 1 to delete, and takes back what others changed in 1 resource"
        ),
        "{body}"
    );
}

/// Stacks that are gone count among those of the repository.
#[test]
fn removed_stacks_add_up_with_those_that_are_left() {
    let mut shop = sample_plans::shop();
    for stack in shop.affected.stacks.iter_mut().take(3) {
        stack.change = InputChange::Removed;
    }
    let body = markdown::comment(&shop.input(COMMENT_BUDGET)).body;
    assert!(
        body.contains("6 of 143 stacks affected, 3 of them removed: "),
        "{body}"
    );
}

/// What is taken over as it runs is a sentence; what changes with it is shown.
#[test]
fn a_takeover_is_one_sentence() {
    let sample = sample_plans::takeover(16, 6);
    let body = markdown::comment(&sample.input(COMMENT_BUDGET)).body;
    for part in [
        "### Konverge preview: 97 to adopt (1 with changes)",
        "16 stacks are taken over as they run: only the owner annotation is added, to 96 objects.",
        "17 of 140 stacks affected: 1 to change (1 in production), 16 taken over as they run",
        "Taken over as they run",
        "**Merging** applies exactly this.",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert_eq!(body.matches("#### » adopt").count(), 1, "{body}");
    // The one that changes shows its owner annotation, too.
    assert_eq!(body.matches("konverge/stack").count(), 1, "{body}");
    let page = html::report(&sample.input(0));
    assert!(page.contains("16 stacks are taken over as they run"), "{page}");
    let terminal = konverge_report::terminal::plan(&sample.plan, konverge_report::terminal::Style::default());
    let sentence =
        "16 stacks are taken over as they run: only the owner annotation is added, to 96 objects.\n";
    assert!(terminal.contains(sentence), "{terminal}");
    assert_eq!(terminal.matches("» adopt").count(), 1, "{terminal}");
    assert!(terminal.contains("97 to adopt (1 with changes)"), "{terminal}");
}

/// Merging over what somebody changed by hand says so at the top, with both values.
#[test]
fn the_top_says_what_merging_takes_back() {
    let mut sample = sample_plans::equal(2);
    let by_hand = sample_plans::change(
        "/spec/replicas",
        Some(json!(6)),
        Some(json!(3)),
        ChangeOrigin::Drift,
    );
    sample.plan.stacks[0].resources[0].changes.push(by_hand);
    let line = "> - `spec.replicas` `6` → `3` of `Deployment app-00-dev/web` in `app-00/dev`";
    let body = markdown::comment(&sample.input(COMMENT_BUDGET)).body;
    let title = "> **Merging also takes back what others changed: 1 value**";
    assert!(body.contains(title) && body.contains(line), "{body}");
    sample.mode.stops_at_drift = true;
    let body = markdown::comment(&sample.input(COMMENT_BUDGET)).body;
    assert!(
        body.contains("> **The apply stops before changing anything, because others changed 1 value**"),
        "{body}"
    );
}

/// A number in a base model reaches 36 stacks: the change is there once, with its cause and its sums.
#[test]
fn a_number_in_a_base_is_one_change_with_its_sums() {
    let sample = sample_plans::base_number(12);
    let body = markdown::comment(&sample.input(COMMENT_BUDGET)).body;
    for part in [
        "36 of 140 stacks affected: 36 to change (12 in production)",
        "**In all**: deletes and replaces nothing · restarts 108 pods: `prod` 60, `dev` 12, `staging` 36 · needs 1 approval by `acme/infra` (12 stacks)",
        "<b>Same change in 36 stacks (12 in production)</b>",
        "By `base/pkg/backend/server.k` → `base/base.k`\n\n`app-00/prod`",
        "- restarts 108 pods by rolling update",
        "- name: NAME",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert_eq!(body.matches("```diff").count(), 1, "{body}");
    golden("comment-base.md", &body);
    golden(
        "comment-300.md",
        &markdown::comment(&sample_plans::large(300).input(COMMENT_BUDGET)).body,
    );
}

/// An apply of which one stack failed half-way.
fn half_way() -> ApplyReport {
    let resource = |id: &str, action, result, message: Option<&str>| ResourceOutcome {
        id: id.parse().unwrap(),
        action,
        result,
        written: false,
        message: message.map(str::to_owned),
        is_stack_error: result == ResourceResult::Failed,
    };
    let error = UserError::new(
        ErrorKind::Kubernetes,
        "`apps/v1:Deployment:shop:web`: quota exceeded",
    );
    ApplyReport {
        version: 1,
        stacks: vec![StackOutcome {
            stack: RepoPath::normalize("appops/shop/dev").unwrap(),
            id: "shop/dev".parse().unwrap(),
            result: StackResult::Failed,
            digest: Digest::of_set([]),
            serial: Some(2),
            grounds: Authorization::default(),
            waiting: None,
            resources: vec![
                resource(
                    "apps/v1:Deployment:shop:web",
                    Action::Update,
                    ResourceResult::Failed,
                    Some("quota exceeded"),
                ),
                resource("v1:ConfigMap:shop:a", Action::Create, ResourceResult::Done, None),
                resource(
                    "v1:ConfigMap:shop:b",
                    Action::Create,
                    ResourceResult::Skipped,
                    None,
                ),
                resource(
                    "v1:ConfigMap:shop:c",
                    Action::Delete,
                    ResourceResult::Skipped,
                    None,
                ),
            ],
            error: Some(error.body()),
        }],
    }
}

/// An apply that ends half-way says how far it came, with what, and how it continues.
#[test]
fn an_apply_that_ends_half_way_says_what_is_changed() {
    let report = half_way();
    let body = markdown::outcome(
        &report,
        &konverge_report::RunInfo::default(),
        None,
        COMMENT_BUDGET,
    );
    let log = konverge_report::outcome::text(&report, terminal::Style::default());
    for said in [
        "`shop/dev` failed: 1 of 4 resources changed",
        "- changed: create `v1 ConfigMap shop/a`\n",
        "- not changed: create `v1 ConfigMap shop/b`, delete `v1 ConfigMap shop/c`\n",
        "What to do: fix the cause and run the apply again",
        "| `shop/dev` | **failed** | 1 of 4 resources | serial 2 |",
    ] {
        assert!(body.contains(said), "{said}: {body}");
    }
    assert!(
        log.contains("shop/dev: failed, 1 of 4 resources changed (serial 2)\n"),
        "{log}"
    );
    assert!(
        log.contains("hint: fix the cause and run the apply again"),
        "{log}"
    );
}

/// Several stacks that are not done share one box, the worst first.
#[test]
fn an_apply_with_several_failed_stacks_has_one_red_box() {
    let mut report = half_way();
    let failed = report.stacks.remove(0);
    let ended = |id: &str, result, kind, message: &str| StackOutcome {
        stack: RepoPath::normalize(&format!("appops/{id}")).unwrap(),
        id: id.parse().unwrap(),
        result,
        serial: None,
        resources: Vec::new(),
        error: Some(UserError::new(kind, message).body()),
        ..failed.clone()
    };
    let message = "its lease was lost\n```\n> [!CAUTION]";
    report.stacks = vec![
        ended(
            "shop/prod",
            StackResult::HeldBack,
            ErrorKind::Policy,
            "`shop/dev` failed",
        ),
        ended(
            "web/dev",
            StackResult::Stopped,
            ErrorKind::Unreviewed,
            "nobody reviewed it",
        ),
        failed.clone(),
        ended("web/prod", StackResult::Failed, ErrorKind::State, message),
    ];
    let run = konverge_report::RunInfo::default();
    let body = markdown::outcome(&report, &run, None, COMMENT_BUDGET);
    let boxes = body.lines().filter(|line| line.starts_with("> [!"));
    assert_eq!(boxes.collect::<Vec<_>>(), ["> [!CAUTION]"], "{body}");
    assert_eq!(body.matches("What to do: ").count(), 1, "{body}");
    golden("apply-unfinished.md", &body);
    // Without room for all of them the worst are shown, and the note says what is missing.
    for stack in 0..60 {
        let id = format!("skipped/s{stack}");
        let message = format!("{stack}: {}", "x".repeat(300));
        report
            .stacks
            .push(ended(&id, StackResult::HeldBack, ErrorKind::Policy, &message));
    }
    let short = markdown::outcome(&report, &run, None, 4096);
    assert!(
        short.len() <= 4096 && short.contains("`web/prod` failed"),
        "{short}"
    );
    assert!(short.contains("Omitted to fit the size limit"), "{short}");
}

/// A small change is read without a click; a large one is not unfolded.
#[test]
fn the_page_opens_a_small_change_by_itself() {
    let open = |sample: &Sample| {
        html::report(&sample.input(0))
            .matches("<details class=\"item\" open")
            .count()
    };
    assert_eq!(open(&sample_plans::spec_only()), 3);
    assert_eq!(open(&distinct(60)), 0);
}

/// What the comment warns of stands in the terminal and on the page too.
#[test]
fn every_surface_warns_of_the_same() {
    let specs = sample_plans::spec_only();
    let said = terminal::plan(&specs.plan, terminal::Style::default());
    assert!(
        said.contains("may have to be replaced: spec.selector.matchLabels.app cannot be changed in place"),
        "{said}"
    );
    let mut equal = sample_plans::equal(3);
    equal.plan.stacks[1].resources[0].validated = konverge_base::model::plan::Validation::None;
    let unchecked = "not validated yet";
    let body = markdown::comment(&equal.input(COMMENT_BUDGET)).body;
    let page = html::report(&equal.input(0));
    assert!(body.contains(unchecked), "{body}");
    assert!(
        page.contains("not validated yet: <code>Deployment app-01-dev/api</code> in <code>app-01/dev</code>"),
        "{page}"
    );
    assert!(!html::report(&sample_plans::equal(3).input(0)).contains(unchecked));
}
