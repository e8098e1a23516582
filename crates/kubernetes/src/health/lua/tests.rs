use super::*;
use serde_json::json;

fn run(script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
    run_at(script, object, "2026-03-04T05:06:07Z".parse().unwrap()).map_err(|error| error_line(&error))
}

/// The message of a script that shows a value.
fn shows(expression: &str, object: &Value) -> String {
    let script = format!("return {{status = 'Healthy', message = tostring({expression})}}");
    run(&script, object).unwrap().unwrap().message
}

#[test]
fn statuses_map_to_ours() {
    for (status, expected) in [
        ("Healthy", Health::Ready),
        ("Progressing", Health::Progressing),
        ("Degraded", Health::Failed),
        ("Suspended", Health::Suspended),
        ("Unknown", Health::Unknown),
        ("Missing", Health::Unknown),
    ] {
        let verdict = run(
            &format!("hs = {{}} hs.status = '{status}' hs.message = 'm' return hs"),
            &json!({}),
        );
        let verdict = verdict.unwrap().unwrap();
        assert_eq!((verdict.health, verdict.message.as_str()), (expected, "m"));
    }
    let odd = run("return {status = 'Fine'}", &json!({})).unwrap().unwrap();
    assert_eq!(odd.health, Health::Unknown);
    assert!(odd.message.contains("invalid health status"), "{odd:?}");
}

#[test]
fn no_answer_is_no_opinion_and_a_wrong_one_an_error() {
    assert_eq!(run("return nil", &json!({})), Ok(None));
    assert_eq!(run("hs = {}", &json!({})), Ok(None));
    assert_eq!(run("return {}", &json!({})), Ok(None));
    assert!(
        run("return 1", &json!({}))
            .unwrap_err()
            .contains("should return a table")
    );
    assert!(
        run("return {status = 3}", &json!({}))
            .unwrap_err()
            .contains("`status`")
    );
    assert!(run("return {status = 'Healthy', message = {}}", &json!({})).is_err());
    let verdict = run("return {Status = 'Healthy', Message = 'case'}", &json!({}))
        .unwrap()
        .unwrap();
    assert_eq!(
        (verdict.health, verdict.message.as_str()),
        (Health::Ready, "case")
    );
}

#[test]
fn values_look_as_in_argo_cd() {
    let object = json!({
        "n": 3, "f": 0.5, "big": 1_700_000_000_i64, "off": false, "null": null, "list": ["a", null, "b"], "empty": [],
        "map": {"k": "v"}, "nothing": {},
    });
    for (expression, expected) in [
        ("obj.n", "3"),
        ("obj.n == 3.0", "true"),
        ("'' .. obj.n", "3"),
        ("obj.n / 2", "1.5"),
        ("obj.f", "0.5"),
        ("obj.big", "1700000000"),
        ("string.format('%d of %s', obj.n, obj.n)", "3 of 3"),
        ("obj.off", "false"),
        ("obj.null == nil", "true"),
        ("obj.status == nil", "true"),
        ("#obj.list", "2"),
        ("obj.list[2]", "b"),
        ("#obj.empty", "0"),
        ("table.getn(obj.list)", "2"),
        ("next(obj.nothing) == nil", "true"),
        ("obj.map.k", "v"),
        ("type(obj.list)", "table"),
        ("table.concat(obj.list, ',')", "a,b"),
        ("math.max(1, obj.n)", "3"),
        ("math.pow(2, obj.n)", "8"),
        ("(unpack(obj.list))", "a"),
        ("table.maxn(obj.list)", "2"),
        ("string.format('%d', obj.n / 2)", "1"),
    ] {
        assert_eq!(shows(expression, &object), expected, "{expression}");
    }
    let script = "local n = 0 for i, item in ipairs(obj.list) do n = n + i end return {status='Healthy', message=tostring(n)}";
    assert_eq!(run(script, &object).unwrap().unwrap().message, "3");
}

#[test]
fn bulk_that_no_rule_reads_is_left_out() {
    let object = json!({"metadata": {"managedFields": [{}], "annotations":
        {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "yes"}}});
    assert_eq!(shows("obj.metadata.managedFields == nil", &object), "true");
    assert_eq!(shows("obj.metadata.annotations.mine", &object), "yes");
    let key = "obj.metadata.annotations['kubectl.kubernetes.io/last-applied-configuration'] == nil";
    assert_eq!(shows(key, &object), "true");
}

#[test]
fn patterns_do_what_the_manual_says() {
    for (expression, expected) in [
        ("('hello world'):match('^(%w+)')", "hello"),
        ("('key = value'):match('^(%w+)%s*=%s*(%w+)$')", "key"),
        ("select(2, ('key = value'):match('^(%w+)%s*=%s*(%w+)$'))", "value"),
        ("('a.b.c'):gsub('%.', '/')", "a/b/c"),
        ("('hello'):gsub('l', {l = 'L'})", "heLLo"),
        (
            "('hello'):gsub('.', function(c) return c == 'e' and '3' or nil end)",
            "h3llo",
        ),
        ("('abc'):gsub('%w', '%0%0')", "aabbcc"),
        ("('hello world'):gsub('(%w+) (%w+)', '%2 %1')", "world hello"),
        ("('abc'):gsub('', '-')", "-a-b-c-"),
        ("('  trim '):gsub('^%s+', '')", "trim "),
        ("('aaa'):gsub('a', 'b', 2)", "bba"),
        ("('hello'):find('l')", "3"),
        ("select(2, ('hello'):find('l+'))", "4"),
        ("('a.b'):find('.', 1, true)", "2"),
        ("('hello'):find('xyz')", "nil"),
        ("('hello'):find('')", "1"),
        ("('hello'):find('l', -2)", "4"),
        ("select(3, ('hello'):find('(h)()'))", "h"),
        ("select(4, ('hello'):find('(h)()'))", "2"),
        ("('[x]'):match('%[(.-)%]')", "x"),
        ("('f(a(b)c)d'):match('%b()')", "(a(b)c)"),
        ("('THE (quick) fox'):find('%f[%a]%a+%f[%A]')", "1"),
        ("('2026-01-02'):match('(%d+)-(%d+)-(%d+)')", "2026"),
        ("('abcabc'):match('(abc)%1')", "abc"),
        ("('a-b_c'):match('[%w_-]+')", "a-b_c"),
        ("('x]y'):match('[]x]+')", "x]"),
        ("('abc'):match('[^a]+')", "bc"),
        ("('aab'):match('a-b')", "aab"),
        ("('color'):match('colou?r')", "color"),
        ("('price: 5%'):match('(%d+)%%')", "5"),
        ("('ab'):rep(3)", "ababab"),
        ("('ab'):rep(0) == ''", "true"),
        ("('ab'):rep(-1) == ''", "true"),
        ("('Abc'):lower():upper():len()", "3"),
    ] {
        assert_eq!(
            shows(&format!("({expression})"), &json!({})),
            expected,
            "{expression}"
        );
    }
    let script = "local out = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do out[#out + 1] = k .. v end \
                  return {status = 'Healthy', message = table.concat(out, ' ')}";
    assert_eq!(run(script, &json!({})).unwrap().unwrap().message, "a1 b2");
    for malformed in [
        "('a'):match('[a')",
        "('a'):match('%')",
        "('a'):match('(a')",
        "('a'):match('a)')",
        "('a'):match('%1')",
    ] {
        assert!(
            run(&format!("return {malformed}"), &json!({})).is_err(),
            "{malformed}"
        );
    }
}

#[test]
fn clock_and_json_are_there() {
    assert_eq!(shows("os.time()", &json!({})), "1772600767");
    assert_eq!(
        shows("os.date('!%Y-%m-%dT%H:%M:%SZ')", &json!({})),
        "2026-03-04T05:06:07Z"
    );
    assert_eq!(shows("os.date('%F', 0)", &json!({})), "1970-01-01");
    assert_eq!(shows("os.date('*t').month", &json!({})), "3");
    assert_eq!(shows("os.time(os.date('!*t', 86399))", &json!({})), "86399");
    assert_eq!(
        shows("os.time{year = 2025, month = 14, day = 1, hour = 0}", &json!({})),
        "1769904000"
    );
    assert_eq!(shows("require('os').time() == os.time()", &json!({})), "true");
    assert_eq!(
        shows("require('json').decode('[{\"a\": 1}]')[1].a", &json!({})),
        "1"
    );
    assert_eq!(
        shows("require('json').encode({a = 'b'})", &json!({})),
        "{\"a\":\"b\"}"
    );
    assert!(
        run("return require('io')", &json!({}))
            .unwrap_err()
            .contains("not there")
    );
}

#[test]
fn nothing_outside_can_be_reached() {
    for name in [
        "io",
        "package",
        "debug",
        "coroutine",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "getfenv",
        "setfenv",
        "collectgarbage",
        "newproxy",
        "module",
        "os.execute",
        "os.getenv",
        "os.exit",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "string.dump",
        "math.randomseed",
    ] {
        assert_eq!(shows(&format!("{name} == nil"), &json!({})), "true", "{name}");
    }
    let script = "os.execute('touch /tmp/konverge-was-here') return {status = 'Healthy'}";
    assert!(run(script, &json!({})).unwrap_err().contains("nil value"));
    assert!(run("\u{1b}LuaQ\0\0\0\0", &json!({})).is_err(), "byte code");
    // Printing is allowed and has no effect.
    assert!(run("print('to nowhere') return {status = 'Healthy'}", &json!({})).is_ok());
}

#[test]
fn goto_continues_a_loop() {
    let script = "
for _, condition in ipairs(obj.conditions) do
    if condition.status ~= 'True' then goto continue end
    local found = condition.type
    if found == 'Ready' then return {status = 'Healthy', message = found} end
    ::continue::
end
return {status = 'Progressing'}";
    let object =
        json!({"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]});
    let verdict = run(script, &object).unwrap().unwrap();
    assert_eq!(
        (verdict.health, verdict.message.as_str()),
        (Health::Ready, "Ready")
    );
}

#[test]
fn memory_is_bounded() {
    for script in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e9)",
        "return (('x'):rep(1e6):gsub('x', ('y'):rep(1e4)))",
        "local s = ('x'):rep(8e6) return s .. s .. s .. s .. s .. s .. s .. s",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "return string.format('%s%s%s%s%s%s%s%s', unpack((function() local s, t = ('x'):rep(8e6), {} for i = 1, 8 do t[i] = s end return t end)()))",
    ] {
        let error = run(script, &json!({})).unwrap_err();
        assert!(
            error.contains("memory") || error.contains("too large") || error.contains("stopped"),
            "{script}: {error}"
        );
    }
    // Empty strings can be repeated for ever in no time.
    assert_eq!(shows("(''):rep(1e300) == ''", &json!({})), "true");
    // The count is an `int` in Lua 5.2: this one is negative.
    assert_eq!(shows("('x'):rep(2^31) == ''", &json!({})), "true");
}

#[test]
fn errors_say_where_in_one_line() {
    let error = run("hs = {}\nhs.status = obj.status.phase\nreturn hs", &json!({})).unwrap_err();
    assert!(
        error.starts_with("health.lua:2:") && !error.contains('\n'),
        "{error}"
    );
    let error = run("return {\n", &json!({})).unwrap_err();
    assert!(
        error.contains("health.lua:1") || error.contains("health.lua:2"),
        "{error}"
    );
    for script in ["error({code = 1})", "error(nil)"] {
        let error = run(script, &json!({})).unwrap_err();
        assert!(!error.is_empty() && !error.contains('\n'), "{script}: {error}");
    }
    let deep = "local function f() return 1 + f() end return f()";
    // The stack may grow as long as there is memory.
    assert!(run(deep, &json!({})).unwrap_err().contains("memory"));
}

#[test]
fn one_script_leaves_nothing_to_the_next() {
    run("string.upper = nil shared = 1 obj.x = 2", &json!({})).unwrap();
    assert_eq!(
        shows("shared == nil and obj.x == nil and ('a'):upper()", &json!({})),
        "A"
    );
}

#[test]
fn an_object_nested_too_deep_is_refused() {
    let mut object = json!("end");
    for _ in 0..500 {
        object = json!({ "next": object });
    }
    assert!(
        run("return {status = 'Healthy'}", &object)
            .unwrap_err()
            .contains("nested")
    );
}
