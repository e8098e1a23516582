//! What an editor shows: lenses, findings, hovers, links, and the texts of the commands.

use serde_json::{Value, json};

use super::client::{Client, uri};
use crate::support::{
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    shop_monorepo::{Shop, resource},
    tiny_monorepo::{monorepo, write_program, write_stack},
};

fn three_stacks() -> Repository {
    let repository = monorepo();
    write_stack(&repository, "a/dev", "a", "low");
    write_stack(&repository, "a/prod", "a", "high");
    write_stack(&repository, "b/dev", "b", "low");
    repository.commit("Three stacks");
    repository
}

#[test]
fn the_server_offers_what_the_server_of_kcl_has_not_and_nothing_else() {
    let repository = three_stacks();
    let mut client = Client::start(repository.path(), &[]);
    let answer = client.ask(
        "initialize",
        json!({"rootUri": uri(repository.path(), ""), "capabilities": {}}),
    );
    let offered: Vec<_> = answer["capabilities"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "textDocumentSync",
        "hoverProvider",
        "codeLensProvider",
        "documentLinkProvider",
        "executeCommandProvider",
    ];
    assert_eq!(offered, expected);
    let commands = answer["capabilities"]["executeCommandProvider"]["commands"].to_string();
    assert!(
        !commands.contains("apply") && !commands.contains("destroy"),
        "{commands}"
    );
    assert_eq!(client.shut_down().code, Some(0));
}

#[test]
fn a_lens_counts_the_stacks_of_a_file_and_those_in_production() {
    let repository = three_stacks();
    let folder = repository.path();
    let mut client = Client::open(folder, &[]);
    client.did_open(folder, "base/app.k");
    assert_eq!(
        client.lenses(folder, "base/app.k"),
        ["affects 3 stacks, 1 in prod", "Show Spec", "Preview"]
    );
    assert_eq!(client.lenses(folder, "appops/b/dev/main.k")[0], "affects 1 stack");
    // A file that no stack has, and one that is only a text.
    repository
        .write("base/unused.k", "a = 1\n")
        .write("notes.yaml", "a: 1\n");
    // The configuration says more than the name.
    let rule = "version: 1\nproduction: ['appops/*/prod*', appops/b/dev]\n";
    repository.write("konverge.yaml", rule);
    client.did_save(folder, "konverge.yaml");
    client.message(|message| message["method"] == "workspace/codeLens/refresh");
    assert_eq!(
        client.lenses(folder, "base/app.k")[0],
        "affects 3 stacks, 2 in prod"
    );
    assert_eq!(client.lenses(folder, "base/unused.k"), ["affects no stack"]);
    assert_eq!(client.lenses(folder, "notes.yaml"), [""; 0]);
    // A save that adds a reader.
    write_stack(&repository, "c/production", "c", "low");
    client.did_save(folder, "appops/c/production/main.k");
    assert_eq!(
        client.lenses(folder, "base/app.k")[0],
        "affects 4 stacks, 3 in prod"
    );
    // A stack whose files are missing is not counted for every file.
    let settings = "kcl_cli_configs:\n  files: [missing.k]\n";
    write_stack(&repository, "broken/prod", "c", "low");
    repository.write("appops/broken/prod/kcl.yaml", settings);
    client.did_save(folder, "appops/broken/prod/kcl.yaml");
    assert_eq!(
        client.lenses(folder, "base/app.k")[0],
        "affects 4 stacks, 3 in prod"
    );
    // The chain on click: what `konverge affected` says of an edit.
    let shown = client.execute("konverge.showChain", folder, "base/app.k");
    let text = shown["text"].as_str().unwrap();
    for part in [
        "An edit of base/app.k affects:",
        "~ a/prod (appops/a/prod)\n    import: base/app.k → appops/a/prod/main.k → appops/a/prod",
        "4 stacks affected.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let request = client.message(|message| message["method"] == "window/showDocument");
    assert_eq!(request["params"]["uri"], shown["uri"]);
    let file = url::Url::parse(shown["uri"].as_str().unwrap())
        .unwrap()
        .to_file_path()
        .unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    // The session takes its files with it, and wrote none into the repository.
    assert_eq!(client.shut_down().code, Some(0));
    assert!(!file.exists());
    assert!(!repository.git(["status", "--porcelain"]).contains("affects"));
}

#[test]
fn the_lens_of_a_file_of_many_stacks_says_how_many_are_checked() {
    let repository = monorepo();
    for number in 0..20 {
        write_stack(&repository, &format!("p{number:02}/dev"), "a", "low");
    }
    repository.commit("Twenty stacks");
    let folder = repository.path();
    let mut client = Client::open(folder, &[]);
    assert_eq!(
        client.lenses(folder, "base/app.k")[0],
        "affects 20 stacks; the nearest 16 are checked"
    );
    let shown = client.execute("konverge.showSpec", folder, "base/app.k");
    let text = shown["text"].as_str().unwrap();
    assert!(
        text.starts_with("# These are the nearest 16 of 20 stacks.\n"),
        "{text}"
    );
    assert_eq!(text.matches("id: v1:ConfigMap:a:settings").count(), 16, "{text}");
}

#[test]
fn findings_come_and_go_with_what_is_saved() {
    let repository = three_stacks();
    let folder = repository.path();
    let main = "appops/a/dev/main.k";
    let mut client = Client::open(folder, &[]);
    client.did_open(folder, main);
    client.did_open(folder, "base/app.k");
    // An error in a shared file is shown there, and once for all of its stacks.
    repository.write("base/app.k", "# 😀\ncolor = \"green\" + 1\n");
    client.did_save(folder, "base/app.k");
    let found = client.findings(folder, "base/app.k", |found| {
        found.iter().any(|found| found["code"] == "compile")
    });
    let compile: Vec<_> = found.iter().filter(|found| found["code"] == "compile").collect();
    assert_eq!(compile.len(), 1, "{found:?}");
    assert_eq!(compile[0]["range"]["start"]["line"], 1, "{found:?}");
    assert_eq!(
        (&compile[0]["severity"], &compile[0]["source"]),
        (&json!(1), &json!("konverge"))
    );
    assert!(
        compile[0]["message"].as_str().unwrap().starts_with("3 stacks: "),
        "{found:?}"
    );
    // Repaired, and an unformatted line in the other open file.
    repository.write("base/app.k", "color = \"green\"\n");
    let text = repository.read(main).replace("resources = [", "resources  =  [");
    repository.write(main, text);
    client.did_save(folder, main);
    client.findings(folder, "base/app.k", <[Value]>::is_empty);
    client.findings(folder, main, |found| {
        found.iter().any(|found| found["code"] == "format")
    });
    // What is only edited changes nothing.
    let edit = json!({"textDocument": {"uri": uri(folder, main), "version": 2}, "contentChanges": [{"text": "x = ="}]});
    client.tell("textDocument/didChange", edit);
    // Files that are closed leave with their findings.
    for file in [main, "base/app.k"] {
        let document = json!({"textDocument": {"uri": uri(folder, file)}});
        client.tell("textDocument/didClose", document);
    }
    client.findings(folder, main, <[Value]>::is_empty);
    assert_eq!(client.shut_down().code, Some(0));
}

fn referring_stack() -> Repository {
    let repository = monorepo();
    let program = r#"import base.app

# 😀 the id is v1:ConfigMap:a:web here
resources = [
    {
        id = "v1:ConfigMap:a:web"
        type = "Kubernetes"
        attributes = {apiVersion = "v1", kind = "ConfigMap", metadata = {name = "web", namespace = "a"}, data = {color = app.color}}
    }
    {
        id = "v1:Secret:a:key"
        type = "Kubernetes"
        attributes = {apiVersion = "v1", kind = "Secret", metadata = {name = "key", namespace = "a"}, stringData = {token = "hunter2-hunter2"}}
    }
    {
        id = "v1:ConfigMap:a:copy"
        type = "Kubernetes"
        attributes = {apiVersion = "v1", kind = "ConfigMap", metadata = {name = "copy", namespace = "a"}, data = {color = "$kusion_path.v1:ConfigMap:a:web.data.color"}}
        dependsOn = ["v1:Secret:a:key"]
    }
]
"#;
    write_program(&repository, "a/dev", program);
    repository.commit("References");
    repository
}

fn hover(client: &mut Client, folder: &std::path::Path, file: &str, text: &str, word: &str) -> Value {
    let at = text.rfind(word).unwrap() + 1;
    let line = text[..at].matches('\n').count();
    let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let column = text[start..at].encode_utf16().count();
    let position = json!({"line": line, "character": column});
    client.ask(
        "textDocument/hover",
        json!({"textDocument": {"uri": uri(folder, file)}, "position": position}),
    )
}

#[test]
fn an_id_and_a_reference_say_what_they_name_and_lead_to_it() {
    let repository = referring_stack();
    let (folder, file) = (repository.path(), "appops/a/dev/main.k");
    let text = repository.read(file);
    let mut client = Client::open(folder, &[]);
    client.did_open(folder, file);
    let said = |value: &Value| value["contents"]["value"].as_str().unwrap_or_default().to_owned();
    let id = said(&hover(&mut client, folder, file, &text, "v1:Secret:a:key"));
    assert_eq!(
        id,
        "v1:Secret:a:key\nstack a/dev\nSecret key in the namespace a\nneeded by v1:ConfigMap:a:copy"
    );
    let reference = said(&hover(&mut client, folder, file, &text, "$kusion_path"));
    assert!(
        reference.contains("v1:ConfigMap:a:web") && reference.contains("data.color: \"green\""),
        "{reference}"
    );
    assert_eq!(hover(&mut client, folder, file, &text, "import"), Value::Null);
    // Behind the emoji, whose width in UTF-16 is two.
    let after = text.find("😀 the id is v1").unwrap() + "😀 the id is ".len();
    let comment = &text[..after + 3];
    assert!(said(&hover(&mut client, folder, file, comment, "v1")).starts_with("v1:ConfigMap:a:web"));
    let links = client.ask(
        "textDocument/documentLink",
        json!({"textDocument": {"uri": uri(folder, file)}}),
    );
    let links = links.as_array().unwrap().clone();
    assert_eq!(links.len(), 6, "{links:?}");
    let resolved = client.ask("documentLink/resolve", links[0].clone());
    let target = url::Url::parse(resolved["target"].as_str().unwrap()).unwrap();
    let line: usize = target
        .fragment()
        .unwrap()
        .strip_prefix('L')
        .unwrap()
        .parse()
        .unwrap();
    let spec = std::fs::read_to_string(target.to_file_path().unwrap()).unwrap();
    assert!(
        spec.lines().nth(line - 1).unwrap().contains("v1:ConfigMap:a:web"),
        "{spec}"
    );
    let missing =
        json!({"range": links[0]["range"], "data": {"uri": uri(folder, file), "mention": "v1:Pod:a:b"}});
    let (code, message) = client.refused("documentLink/resolve", missing);
    assert_eq!(
        (code, message.contains("`v1:Pod:a:b`")),
        (-32_803, true),
        "{message}"
    );
}

#[test]
fn the_shown_spec_is_masked_and_the_preview_is_the_difference() {
    let repository = referring_stack();
    let (folder, file) = (repository.path(), "appops/a/dev/main.k");
    repository.branch("change").replace(file, "\"web\"", "\"page\"");
    let mut client = Client::open(folder, &[]);
    let spec = client.execute("konverge.showSpec", folder, file);
    let text = spec["text"].as_str().unwrap();
    assert!(text.starts_with("# a/dev (appops/a/dev)\nresources:"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    repository.write("base/app.k", "color = \"red\"\n");
    client.did_save(folder, "base/app.k");
    let preview = client.execute("konverge.preview", folder, file);
    let text = preview["text"].as_str().unwrap();
    assert!(text.contains("a/dev") && text.contains("color: red"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    // A stack that does not compile is an error of the command, with its place.
    repository.write("base/app.k", "color = = 1\n");
    client.did_save(folder, "base/app.k");
    let arguments = json!({"command": "konverge.showSpec", "arguments": [uri(folder, file)]});
    let (code, message) = client.refused("workspace/executeCommand", arguments);
    assert!(code == -32_803 && message.contains("base/app.k:1"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_asks_the_cluster_and_writes_nothing() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("editor").await, Objects::of(cluster).await);
    let kubeconfig = cluster.kubeconfig();
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        &[("KUBECONFIG", &kubeconfig)],
    );
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": ns}, "data": {"a": "b"}});
    shop.wants("dev", &[resource(&one)]);
    let shown = {
        let folder = shop.monorepo.path();
        let mut client = Client::open(folder, &[("KUBECONFIG", &kubeconfig)]);
        client.did_open(folder, "apps/shop/dev/main.k");
        client.execute("konverge.preview", folder, "apps/shop/dev/main.k")
    };
    let text = shown["text"].as_str().unwrap();
    assert!(
        text.contains("shop/dev") && text.contains("1 to create"),
        "{text}"
    );
    let path = format!("/namespaces/{ns}/configmaps");
    let writes = cluster.audit().into_iter().filter(|event| {
        event.uri.contains(&path)
            && !matches!(event.verb.as_str(), "get" | "list" | "watch")
            && !event.uri.contains("dryRun=All")
    });
    assert_eq!(writes.count(), 0);
    assert!(objects.get(&one).await.is_none());
}

#[test]
fn two_sessions_and_many_requests_at_once_are_all_answered() {
    let repository = three_stacks();
    let folder = repository.path();
    let mut clients = [Client::open(folder, &[]), Client::open(folder, &[])];
    for client in &mut clients {
        client.did_open(folder, "base/app.k");
    }
    let arguments = json!({"command": "konverge.showSpec", "arguments": [uri(folder, "base/app.k")]});
    for client in &mut clients {
        let ids: Vec<_> = (0..6)
            .map(|_| client.request("workspace/executeCommand", arguments.clone()))
            .collect();
        for id in ids.iter().step_by(2) {
            client.tell("$/cancelRequest", json!({"id": id}));
            client.did_save(folder, "base/app.k");
        }
        for (at, id) in ids.into_iter().enumerate() {
            let answer = client.answer(id);
            let is_cancelled = answer["error"]["code"] == -32_800;
            let is_shown = answer["result"]["text"]
                .as_str()
                .is_some_and(|text| text.contains("a/prod"));
            assert!(is_shown || is_cancelled && at % 2 == 0, "{answer}");
        }
        assert_eq!(
            client.lenses(folder, "base/app.k")[0],
            "affects 3 stacks, 1 in prod"
        );
    }
    for client in clients {
        assert_eq!(client.shut_down().code, Some(0));
    }
}
