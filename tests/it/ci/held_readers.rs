//! Readers of outputs whose writer is not there yet, and what else happens at the same time.

use std::time::Duration;

use super::{
    rollouts::{continued, people},
    stack_outputs::{config_map, konverge, output, reading, version_read},
};
use crate::support::{
    ci_stage::{Ran, Stage},
    file_server::{FileServer, Manners},
    payloads,
    process::Outcome,
    random::{Random, setting},
    tiny_monorepo,
};

fn said(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

/// A reader `id` whose ConfigMap holds the version that `writer` publishes.
fn version_reader(stage: &Stage, id: &str, map: &str, writer: &str) {
    let program = config_map(map, "is $stack_output.w.version");
    reading(stage, id, &format!("{{w: {writer}}}"), &program);
}

async fn holds_the_version(stage: &Stage, map: &str, writer: &str) {
    let version = output(stage, writer, "version");
    let value = format!("is {}", version["value"].as_str().unwrap());
    assert_eq!(stage.value(map).await.unwrap(), value);
    assert_eq!(version["readers"][0]["current"], true, "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_another_environment_comes_first() {
    let rules = "stacks:\n- {match: 'appops/*/dev', environment: dev}\n- {match: 'appops/*/prod', environment: production}\noutputs: {allow: [{from: 'appops/o-env/dev', to: 'appops/o-env/prod'}]}\n";
    let mut stage = Stage::small(rules).await;
    stage.reviewed(7, "both", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "o-env/dev", &config_map("o-env-w", "one"));
        version_reader(stage, "o-env/prod", "o-env-r", "o-env/dev");
    });
    let (before, after) = stage.press_merge(7, "both");
    let job = |stage: &mut Stage, environment: &str| -> Ran {
        stage.env = vec![("KONVERGE_FOR_ENVIRONMENT", environment.to_owned())];
        let ran = stage.push(&before, &after);
        stage.env.clear();
        ran
    };
    let early = job(&mut stage, "production");
    assert!(early.summary.contains("o-env/prod"), "{}", early.summary);
    assert!(
        early
            .summary
            .contains("o-env/dev of the environment dev must be applied first"),
        "{}",
        early.summary
    );
    assert_eq!(stage.value("o-env-r").await, None);
    job(&mut stage, "dev").outcome.check(0);
    assert_eq!(stage.value("o-env-r").await, None);
    job(&mut stage, "production").outcome.check(0);
    holds_the_version(&stage, "o-env-r", "o-env/dev").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_shard_comes_first() {
    let stage = Stage::small("").await;
    tiny_monorepo::write_program(&stage.monorepo, "o-shard/a", &config_map("o-shard-w", "one"));
    for name in ["b", "c"] {
        let (id, map) = (format!("o-shard/{name}"), format!("o-shard-{name}"));
        version_reader(&stage, &id, &map, "o-shard/a");
    }
    stage.monorepo.commit("Made");
    let apply = |shard: &str| {
        konverge(
            &stage,
            &["apply", "--pending", "--rev", "HEAD", "--yes", "--shard", shard],
        )
    };
    let shards = ["1/3", "2/3", "3/3"];
    let stacks = |shard: &str| {
        let arguments = [
            "preview",
            "--pending",
            "--rev",
            "HEAD",
            "--shard",
            shard,
            "--output",
            "json",
        ];
        let shown = konverge(&stage, &arguments).expect(0).json();
        let stacks = shown["stacks"].as_array().unwrap().clone();
        let ids = stacks
            .iter()
            .map(|stack| stack["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let dealt: Vec<_> = shards.iter().map(|shard| (*shard, stacks(shard))).collect();
    let of_writer = |(_, stacks): &&(&str, Vec<String>)| stacks.contains(&"o-shard/a".to_owned());
    let mut held_back = 0;
    for (shard, stacks) in dealt.iter().filter(|shard| !of_writer(shard)) {
        let held = said(&apply(shard));
        for reader in stacks {
            assert!(
                held.contains(reader) && held.contains("reads `version` of o-shard/a, which is not applied"),
                "{held}"
            );
            held_back += 1;
        }
    }
    assert!(held_back > 0, "{dealt:?}");
    let (of_the_writer, _) = dealt.iter().find(of_writer).unwrap();
    for shard in [*of_the_writer].into_iter().chain(shards) {
        apply(shard).check(0);
    }
    for name in ["b", "c"] {
        holds_the_version(&stage, &format!("o-shard-{name}"), "o-shard/a").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_writer_comes_first() {
    let rules = |until: &str| {
        format!(
            "stacks: [{{match: 'appops/o-frozen/writer', policy: {{freeze: [{{from: '2020-01-01T00:00:00Z', until: '{until}', reason: the fair}}]}}}}]\n"
        )
    };
    let mut stage = Stage::small(&rules("2999-01-01T00:00:00Z")).await;
    stage.reviewed(7, "both", |stage| {
        tiny_monorepo::write_program(
            &stage.monorepo,
            "o-frozen/writer",
            &config_map("o-frozen-w", "one"),
        );
        version_reader(stage, "o-frozen/reader", "o-frozen-r", "o-frozen/writer");
    });
    let merged = stage.merge(7, "both");
    assert_ne!(merged.outcome.code, Some(0));
    let summary = &merged.summary;
    assert!(
        summary.contains("the fair") && summary.contains("o-frozen/reader"),
        "{summary}"
    );
    let told = said(&merged.outcome);
    assert!(
        told.contains("o-frozen/writer must be applied first") || told.contains("after o-frozen/writer"),
        "{told}"
    );
    assert_eq!(stage.value("o-frozen-r").await, None);

    stage.straight_to_main(|stage| stage.configure(&rules("2021-01-01T00:00:00Z")));
    stage.again().outcome.check(0);
    holds_the_version(&stage, "o-frozen-r", "o-frozen/writer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_a_later_wave_comes_first() {
    let rules = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', bake: 1s, gates: [go]}\n  - {match: 'appops/*/eu'}\ngates: {go: {approve: {by: [acme/sre]}}}\n";
    let mut stage = Stage::small(rules).await;
    people(&stage);
    stage.reviewed(7, "both", |stage| {
        stage.stack("o-wave/canary", &[("o-wave-c", "one")]);
        tiny_monorepo::write_program(&stage.monorepo, "o-wave/eu", &config_map("o-wave-w", "one"));
        version_reader(stage, "o-wave/free", "o-wave-r", "o-wave/eu");
    });
    let merged = stage.merge(7, "both");
    let told = said(&merged.outcome);
    assert_eq!(stage.value("o-wave-c").await.as_deref(), Some("one"), "{told}");
    assert_eq!(stage.value("o-wave-r").await, None, "{told}");
    assert!(
        told.contains("o-wave/free") && told.contains("o-wave/eu"),
        "{told}"
    );
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    stage.approve(&merged.digest()).outcome.check(0);
    stage.env.clear();
    continued(&mut stage).outcome.check(0);
    holds_the_version(&stage, "o-wave-r", "o-wave/eu").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wave_does_not_read_from_a_later_one() {
    let mut stage = Stage::small(
        "rollouts: [{name: web, waves: [{match: 'appops/*/canary'}, {match: 'appops/*/eu'}]}]\n",
    )
    .await;
    stage.reviewed(7, "both", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "o-back/eu", &config_map("o-back-w", "one"));
        version_reader(stage, "o-back/canary", "o-back-r", "o-back/eu");
    });
    let merged = stage.merge(7, "both");
    merged.outcome.check(1);
    let told = said(&merged.outcome);
    assert!(
        told.contains("form a cycle: o-back/canary of wave 1 comes after o-back/eu of wave 2"),
        "{told}"
    );
    assert_eq!(stage.value("o-back-r").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_can_not_be_read_stops_the_reader() {
    let stage = version_read("o-broken").await;
    let before = stage.value("o-broken-r").await;
    let mut broken = 0;
    let mut open = vec![stage.scratch.path().join("store")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().contains("o-broken%2Fwriter/state/") {
                std::fs::write(path, "{\"resources\": [").unwrap();
                broken += 1;
            }
        }
    }
    assert!(broken > 0);
    version_reader(&stage, "o-broken/other", "o-broken-o", "o-broken/writer");
    stage.monorepo.commit("Another reader");
    for command in [
        &["preview", "o-broken/other"][..],
        &["apply", "o-broken/other", "--yes"],
    ] {
        let ran = konverge(&stage, command);
        assert_ne!(ran.code, Some(0), "{}", said(&ran));
        let told = said(&ran);
        assert!(
            told.contains("o-broken/writer") && told.contains("o-broken/other"),
            "{told}"
        );
    }
    assert_eq!(stage.value("o-broken-o").await, None);
    assert_eq!(stage.value("o-broken-r").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_from_outside_sees_a_name_and_no_value() {
    const VALUE: &str = "the-address-of-the-inside";
    let mut stage = Stage::small("").await;
    let inside = config_map("o-inside-w", VALUE).replace("metadata.resourceVersion", "data.value");
    stage.reviewed(7, "inside", |stage| {
        tiny_monorepo::write_program(&stage.monorepo, "o-inside/writer", &inside);
    });
    stage.merge(7, "inside").outcome.check(0);
    assert_eq!(output(&stage, "o-inside/writer", "version")["value"], VALUE);

    stage.monorepo.checkout("main").branch("contribute");
    version_reader(&stage, "o-inside/reader", "o-inside-r", "o-inside/writer");
    let head = stage.monorepo.commit("contribute");
    stage.opened(8, "contribute", "opened", "mallory/konfig");
    let payload = payloads::workflow_run(("contribute", &head), "mallory/konfig", "mallory");
    let tip = stage.monorepo.rev("main");
    let previewed = stage.ci("workflow_run", &payload, &tip, "refs/heads/main");
    previewed.outcome.check(0);
    let comment = stage.comments().pop().unwrap().1;
    assert!(comment.contains("${o-inside/writer.version}"), "{comment}");
    let shown = [
        &comment,
        &previewed.summary,
        &previewed.outcome.stdout,
        &previewed.outcome.stderr,
    ];
    assert!(shown.iter().all(|text| !text.contains(VALUE)), "{shown:?}");
}

/// The store lists the index once, however many stacks read others.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_is_one_list_with_readers() {
    let server = FileServer::start(Manners::Careful).await;
    let stage = Stage::small("").await;
    let path = stage.monorepo.path().join("konverge.yaml");
    let config = std::fs::read_to_string(path).unwrap();
    let store = format!("file://{}", stage.scratch.path().join("store").display());
    assert!(config.contains(&store));
    let config = config.replace(&store, &format!("{}/p?allow_http=true", server.url));
    stage.monorepo.write("konverge.yaml", config);
    let mut stage = stage;
    stage.env = vec![("KONVERGE_HTTP_TOKEN", FileServer::TOKEN.to_owned())];
    tiny_monorepo::write_program(&stage.monorepo, "o-list/writer", &config_map("o-list-w", "one"));
    let lists = |stage: &Stage| {
        server.asked();
        konverge(
            stage,
            &["preview", "--pending", "--rev", "HEAD", "--output", "json"],
        )
        .check(0);
        let asked = server.asked();
        let lists: Vec<_> = asked
            .into_iter()
            .filter(|line| line.starts_with("GET") && line.ends_with("?list") && line.contains("/index"))
            .collect();
        lists
    };
    for readers in [1, 8] {
        for reader in 0..readers {
            let (id, map) = (format!("o-list/r{reader}"), format!("o-list-r{reader}"));
            version_reader(&stage, &id, &map, "o-list/writer");
        }
        stage.monorepo.commit("Readers");
        konverge(&stage, &["apply", "--pending", "--rev", "HEAD", "--yes"]).check(0);
        let none = lists(&stage);
        assert_eq!(none.len(), 1, "{readers} readers: {none:?}");
    }
}

/// Of two runs at once, one has the commit that changes the writer, the other the one that changes the reader.
#[tokio::test(flavor = "multi_thread")]
async fn two_runs_at_once_of_a_writer_and_its_reader() {
    let seed = setting("KONVERGE_OUTPUTS_SEED", 20_261_129);
    println!("KONVERGE_OUTPUTS_SEED={seed}");
    let mut random = Random::of(seed);
    let mut stage = version_read("o-two").await;
    for round in 0..4_u64 {
        let (first, second) = (10 + 2 * round, 11 + 2 * round);
        let (writer, reader) = (format!("writer-{round}"), format!("reader-{round}"));
        stage.reviewed(first, &writer, |stage| {
            let program = config_map("o-two-w", &format!("round {round}"));
            tiny_monorepo::write_program(&stage.monorepo, "o-two/writer", &program);
        });
        stage.reviewed(second, &reader, |stage| {
            let program = config_map("o-two-r", "is $stack_output.w.version").replace(
                "metadata = {",
                &format!("metadata = {{labels = {{round = \"r{round}\"}}, "),
            );
            reading(stage, "o-two/reader", "{w: o-two/writer}", &program);
        });
        let mut runs = Vec::new();
        for (number, branch) in [(first, &writer), (second, &reader)] {
            let (before, after) = stage.press_merge(number, branch);
            let payload = payloads::push("main", &before, &after, false);
            let checkout = stage.scratch.path().join(branch);
            stage.monorepo.git([
                "worktree",
                "add",
                "--quiet",
                "--detach",
                checkout.to_str().unwrap(),
                &after,
            ]);
            let (run, _) = stage.prepared(&checkout, "push", &payload, &after, "refs/heads/main");
            runs.push(run);
        }
        if random.once_in(2) {
            runs.reverse();
        }
        let wait = Duration::from_millis(random.below(1_500) as u64);
        let running = runs.remove(0).start();
        std::thread::sleep(wait);
        let others = runs.remove(0).start();
        for ended in [running.wait(), others.wait()] {
            assert!(
                matches!(ended.code, Some(0 | 3 | 4)),
                "{:?}: {}",
                ended.code,
                said(&ended)
            );
        }
        // The reader's pull request did not see the new version if its run came late: then a person agrees.
        let last = stage.again();
        if last.outcome.code != Some(0) {
            let digest = last.digest();
            stage.approve(&digest).outcome.check(0);
        }
        holds_the_version(&stage, "o-two-r", "o-two/writer").await;
    }
}
