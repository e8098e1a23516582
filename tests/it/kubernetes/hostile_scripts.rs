//! Scripts of readiness run in processes with limits: whatever a script does, it is stopped in time, and the others go
//! on.

use std::time::Duration;

use futures::future::join_all;
use konverge_base::model::health::Health;
use konverge_policy_sets::workers::{RuleLimits, RuleWorkers};
use serde_json::json;

/// The kernel counts whole seconds, so this is at most one.
fn workers() -> RuleWorkers {
    let limits = RuleLimits {
        time: Duration::ZERO,
        ..RuleLimits::default()
    };
    RuleWorkers::new(Some(env!("CARGO_BIN_EXE_konverge").into()), limits)
}

/// Each script must have one of these errors, and a harmless script is run afterwards.
async fn all_end(scripts: &[&str], errors: &[&str]) {
    let (workers, object) = (workers(), json!({}));
    let ends = scripts.iter().map(|script| workers.run_script(script, &object));
    for (script, end) in scripts.iter().zip(join_all(ends).await) {
        let error = end.expect_err(script);
        assert!(
            errors.iter().any(|expected| error.contains(expected)),
            "{script}: {error}"
        );
    }
    let report = workers.run_script("return {status = 'Healthy'}", &object).await;
    assert_eq!(report.unwrap().unwrap().health, Health::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_loops_are_stopped_even_if_they_catch_errors() {
    let scripts = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() local ok = pcall(f) return ok end while true do f() end",
        "repeat xpcall(function() while true do end end, function() while true do end end) until false",
        "xpcall(error, function() while true do end end)",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
        "for _ in function() return 1 end do end",
        "table.sort({3, 1, 2}, function() while true do end end)",
        "return (('x'):gsub('x', function() while true do end end))",
        "pcall(function() while true do end end) return {status = 'Healthy'}",
        "::again:: goto again",
        "setmetatable({}, {__gc = function() while true do end end}) return {status = 'Healthy'}",
    ];
    all_end(&scripts, &["stopped: it took more than"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_explode_are_stopped() {
    let scripts = [
        "return (('a'):rep(50):match(('a-'):rep(40) .. 'b'))",
        "return (('a'):rep(100):match(('a?'):rep(100) .. ('a'):rep(101)))",
        "return (('('):rep(300000):find(('%b()'):rep(10)))",
        "return (('a'):rep(300000):match('.-.-.-.-b'))",
        "return (('a'):rep(1000):match(('(a'):rep(100)))",
    ];
    all_end(&scripts, &["complex", "captures", "stopped"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_stack_are_bounded() {
    let scripts = [
        "local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end",
        "return ('x'):rep(1e9)",
        "return (('x'):rep(1e6):gsub('x', ('y'):rep(1e4)))",
        "while true do pcall(string.rep, 'x', 1e9) end",
        "local function f() return 1 + f() end return f()",
        "local function f() return (('x'):gsub('x', f)) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__tostring = function() return tostring(t) end return tostring(t)",
    ];
    all_end(&scripts, &["stopped", "stack overflow"]).await;
}

/// Where no worker starts, a rule says so: it is not left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_start_is_an_error() {
    for program in ["/nonexistent/konverge", "/bin/true", "/bin/cat"] {
        let workers = RuleWorkers::new(Some(program.into()), RuleLimits::default());
        let report = workers
            .run_script("return {status = 'Healthy'}", &json!({}))
            .await;
        assert!(report.unwrap_err().contains("worker"), "{program}");
    }
}
