//! Compiling with the real core: values, errors, and workers that misbehave.

use std::time::Duration;

use konverge_base::{
    error::{UserError, chain},
    model::RepoPath,
};
use konverge_kcl::{InstallOptions, InstallStep, KclError, Pool, PoolOptions};
use serde_json::json;

use crate::support::compiler::{options, pool, program, request};

#[tokio::test]
async fn values_are_what_they_were_in_kcl() {
    let pool = pool().await;
    let mut request = program(
        "z = \"1\"\na = 9223372036854775807\nf = 1.0\nt = \"\"\"x\ny\n\"\"\"\nn = None\no = option(\"o\")\np = option(\"p\")\nprint(\"hello\")\n",
    );
    request.setup.options = vec![
        ("o".to_owned(), json!("1")),
        ("p".to_owned(), json!({"k": [1, 2.0]})),
    ];
    let compiled = pool.compile(&request).await.unwrap();
    assert_eq!(
        serde_json::to_string(&compiled.documents).unwrap(),
        r#"[{"z":"1","a":9223372036854775807,"f":1.0,"t":"x\ny\n","n":null,"o":"1","p":{"k":[1,2.0]}}]"#
    );
    assert_eq!(compiled.warnings, ["hello"]);
}

#[tokio::test]
async fn a_stream_of_documents_stays_one() {
    let pool = pool().await;
    let text = "import manifests\nmanifests.yaml_stream([{a = 1}, {b = 2}])\n";
    let compiled = pool.compile(&program(text)).await.unwrap();
    assert_eq!(compiled.documents, [json!({"a": 1}), json!({"b": 2})]);
}

#[tokio::test]
async fn imports_overrides_and_null_removal_work() {
    let pool = pool().await;
    let files = [
        ("kcl.mod", "[package]\nname = \"m\"\n"),
        ("base/pkg/a.k", "schema A:\n    x: int = 1\n    y?: str\n"),
        ("app/base/base.k", "import base.pkg\na: pkg.A {}\n"),
        ("app/dev/main.k", "a: pkg.A {x = 2}\n"),
    ];
    let mut request = request(&files, "app/dev", &["app/base/base.k", "app/dev/main.k"]);
    request.setup.disable_none = true;
    request.setup.overrides = vec!["a.x=3".to_owned()];
    let compiled = pool.compile(&request).await.unwrap();
    assert_eq!(compiled.documents, [json!({"a": {"x": 3}})]);
}

#[tokio::test]
async fn an_error_has_file_line_column_source_and_hint() {
    let pool = pool().await;
    let files = [
        ("kcl.mod", ""),
        ("app/main.k", "import nope.x\n\na: int = \"s\"\n"),
    ];
    let error = pool
        .compile(&request(&files, "app", &["app/main.k"]))
        .await
        .unwrap_err();
    let failure = UserError::from(error);
    let place = failure.location.clone().unwrap();
    assert_eq!(place.to_string(), "app/main.k:1:1");
    assert!(failure.message.contains("import nope.x"), "{}", failure.message);
    assert!(
        failure
            .message
            .contains("app/main.k:3:1: TypeError: expected int, got str(s)"),
        "{}",
        failure.message
    );
    assert!(
        failure.hints.iter().any(|hint| hint.contains("kcl mod add")),
        "{failure:?}"
    );
    assert!(!failure.message.contains("konverge-kcl-"), "{}", failure.message);
}

#[tokio::test]
async fn a_file_outside_the_closure_can_not_be_read() {
    let pool = pool().await;
    let with = [
        ("kcl.mod", ""),
        ("main.k", "import lib.a\nx = a.x\n"),
        ("lib/a.k", "x = 1\n"),
    ];
    assert!(pool.compile(&request(&with, "", &["main.k"])).await.is_ok());
    // The same worker, without the file: what an earlier compile had is gone.
    for _ in 0..2 {
        let error = pool
            .compile(&request(&with[..2], "", &["main.k"]))
            .await
            .unwrap_err();
        assert!(matches!(error, KclError::Code(_)), "{error}");
    }
}

#[tokio::test]
async fn a_hang_is_stopped_and_takes_no_other_stack_down() {
    let mut options = options().await;
    options.deadline = Duration::from_secs(2);
    let pool = Pool::start(options).await.unwrap();
    let hang = program("a = [x * y for x in range(100000) for y in range(100000)]\n");
    let good = program("a = 1\n");
    let (hung, fine) = tokio::join!(pool.compile(&hang), pool.compile(&good));
    assert!(matches!(hung, Err(KclError::Deadline { .. })), "{hung:?}");
    assert_eq!(fine.unwrap().documents, [json!({"a": 1})]);
    assert!(pool.compile(&good).await.is_ok());
}

#[tokio::test]
async fn endless_recursion_ends_that_compile_alone() {
    let mut options = options().await;
    options.deadline = Duration::from_secs(3);
    let pool = Pool::start(options).await.unwrap();
    // How the core takes it differs: some never come back, some overflow their stack.
    let error = pool
        .compile(&program("f = lambda x { f(x + 1) }\na = f(1)\n"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, KclError::Deadline { .. } | KclError::Crash { .. }),
        "{error}"
    );
    assert!(UserError::from(error).to_string().contains("test/stack"));
    assert!(pool.compile(&program("a = 1\n")).await.is_ok());
}

#[tokio::test]
async fn a_memory_bomb_hits_its_limit() {
    let mut options = options().await;
    options.memory_limit = 512 << 20;
    let pool = Pool::start(options).await.unwrap();
    let error = pool
        .compile(&program("a = \"x\" * 100000000\nb = a * 100000\n"))
        .await
        .unwrap_err();
    assert!(chain(&error).contains("512 MiB"), "{error}");
    assert!(pool.compile(&program("a = 1\n")).await.is_ok());
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_is_replaced_and_nothing_is_lost() {
    let mut options = options().await;
    options.workers = 1;
    let pool = Pool::start(options).await.unwrap();
    let busy = pool.idle_pids();
    let slow = program("a = sum([x for x in range(3000000)])\n");
    let compile = tokio::spawn({
        let pool = pool.clone();
        async move { pool.compile(&slow).await }
    });
    while !pool.idle_pids().is_empty() {
        tokio::task::yield_now().await;
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(busy[0]).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let compiled = compile.await.unwrap().unwrap();
    assert_eq!(compiled.documents, [json!({"a": 4_499_998_500_000_i64})]);
    assert_eq!(pool.workers_started(), 2);
}

#[tokio::test]
async fn workers_killed_in_the_middle_of_a_batch_cost_no_stack() {
    let pool = pool().await;
    // Both workers, warm, and then both at work on a batch.
    let warm = program("a = sum([x for x in range(200000)])\n");
    let _ = tokio::join!(pool.compile(&warm), pool.compile(&warm));
    let workers = pool.idle_pids();
    assert_eq!(workers.len(), 2);
    let batch: Vec<_> = (0..12)
        .map(|n| {
            let pool = pool.clone();
            let request = program(&format!("n = {n}\na = sum([x for x in range(300000)])\n"));
            tokio::spawn(async move { pool.compile(&request).await })
        })
        .collect();
    for pid in workers {
        let busy = |pool: &Pool| !pool.idle_pids().contains(&pid);
        while !busy(&pool) {
            tokio::task::yield_now().await;
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    for (n, compile) in batch.into_iter().enumerate() {
        let compiled = compile.await.unwrap().unwrap();
        assert_eq!(compiled.documents, [json!({"n": n, "a": 44_999_850_000_i64})]);
    }
    assert_eq!(pool.workers_started(), 4);
}

#[tokio::test]
async fn a_worker_is_replaced_after_its_share() {
    let mut options = options().await;
    options.workers = 1;
    options.serve = 2;
    let pool = Pool::start(options).await.unwrap();
    for _ in 0..5 {
        pool.compile(&program("a = 1\n")).await.unwrap();
    }
    assert_eq!(pool.workers_started(), 3);
}

#[tokio::test]
async fn scratch_folders_go_with_their_workers() {
    let pool = pool().await;
    let compiled = pool
        .compile(&program("import file\na = file.workdir()\n"))
        .await
        .unwrap();
    let folder = compiled.documents[0]["a"].as_str().unwrap().to_owned();
    assert!(std::path::Path::new(&folder).is_dir(), "{folder}");
    drop(pool);
    assert!(!std::path::Path::new(&folder).exists(), "{folder}");
}

#[tokio::test]
async fn a_request_of_git_files_is_refused() {
    let pool = pool().await;
    let mut request = program("a = 1\n");
    request.files.push((
        RepoPath::normalize(".git/config").unwrap(),
        b"token".as_slice().into(),
    ));
    assert!(matches!(
        pool.compile(&request).await,
        Err(KclError::Scratch { .. })
    ));
}

#[tokio::test]
#[ignore = "fetches cores from the package index: make test-all"]
async fn cores_of_several_versions_work_side_by_side() {
    let data = tempfile::tempdir().unwrap();
    for version in ["0.9.3", "0.11.0", "0.12.5", "0.13.2"] {
        let install = InstallOptions {
            data: Some(data.path().to_owned()),
            ..InstallOptions::default()
        };
        let core = konverge_kcl::install(version, &install, &mut |_| {})
            .await
            .unwrap();
        assert_eq!(core.version, version);
        let mut steps = Vec::new();
        let again = konverge_kcl::install(version, &install, &mut |step| steps.push(step)).await;
        assert_eq!(again.unwrap(), core);
        assert_eq!(steps, [InstallStep::Present]);
        let pool = Pool::start(PoolOptions::new(core, env!("CARGO_BIN_EXE_konverge").into()))
            .await
            .unwrap();
        let compiled = pool
            .compile(&program("a = 1\nb = \"1\"\nc = 1.0\n"))
            .await
            .unwrap();
        assert_eq!(
            compiled.documents[0].to_string(),
            r#"{"a":1,"b":"1","c":1.0}"#,
            "{version}"
        );
        // An error of the code is one, also where the core answers it with a panic.
        let error = pool
            .compile(&program("a = 1\nb: int = \"x\"\n"))
            .await
            .unwrap_err();
        let place = UserError::from(error).location.unwrap();
        assert_eq!(place.to_string(), "main.k:2:1", "{version}");
    }
}
