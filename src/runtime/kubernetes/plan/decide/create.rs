//! What is not there yet: the server checks it where it can, a schema we know where it can not, and else nobody.

use serde_json::{Map, Value, json};

use super::{Draft, Planner, Subject};
use crate::{
    error::{ErrorKind, Failure},
    model::{
        Digest,
        plan::{Action, Change, Origin, Validation},
        value,
    },
    runtime::{
        Item,
        kubernetes::{
            custom, dry_run, identity,
            triage::{self, Cause},
        },
    },
    secrets::mask_object,
};

impl Planner<'_> {
    pub(super) async fn create(&self, item: &Item, subject: &Subject) -> Result<Draft, Failure> {
        let mut draft = self.create_later(item, subject);
        let body = self.body(item, self.scope.stack.as_str());
        if body.values().any(value::holds_unknown) {
            draft
                .notes
                .push("some values are known only after apply; it is checked then".to_owned());
            return Ok(draft);
        }
        let Some(of) = &subject.of else {
            return self.unknown_kind(subject, draft, &body);
        };
        let body = Value::Object(body);
        // The server would only say that the namespace is missing.
        if self.lacks_namespace(subject) {
            self.elsewhere(subject, &mut draft, body).await?;
            return Ok(draft);
        }
        let request = dry_run::request(of, &subject.name, &body, false, true);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.extend(answer.warnings);
                draft.expected = Some(expected(answer.value, &body));
            }
            Err(error) => match triage::cause(&error) {
                Cause::NoNamespace => {
                    self.note_absent_namespace(subject);
                    self.elsewhere(subject, &mut draft, body).await?;
                }
                Cause::NoDryRun => draft.notes.push(format!("not checked by the server: {error}")),
                _ => return Err(subject.refusal(&error)),
            },
        }
        Ok(draft)
    }

    /// The plan of a creation that nobody has checked.
    pub(super) fn create_later(&self, item: &Item, subject: &Subject) -> Draft {
        let body = self.body(item, self.scope.stack.as_str());
        let mut shown = body.clone();
        let written = item.desired.as_ref().map(|d| &d.attributes);
        identity::remove_owner(&mut shown, written.is_some_and(identity::has_annotations));
        let mut draft = Draft::new(Action::Create);
        draft.changes = vec![Change {
            path: String::new(),
            from: None,
            to: Some(Value::Object(
                mask_object(&self.runtime.secrets, &shown).into_owned(),
            )),
            origin: Origin::Change,
        }];
        draft.recorded = self.record(item, subject, &body, None, "");
        let body = Value::Object(body);
        draft.expected = Some(expected(body.clone(), &body));
        draft.private = json!({"body": body, "force": false});
        draft
    }

    /// The namespace is only about to be made: the server checks the same object in `default`, by another name.
    async fn elsewhere(&self, subject: &Subject, draft: &mut Draft, mut body: Value) -> Result<(), Failure> {
        let Some(of) = &subject.of else { return Ok(()) };
        let namespace = subject.name.namespace.clone();
        let whose = if self.namespaces.contains(&namespace) {
            "this plan makes it"
        } else {
            "this stack does not make it: another one must, before"
        };
        let mut name = subject.name.clone();
        name.namespace = "default".to_owned();
        name.name = scratch_name(&body);
        body["metadata"]["namespace"] = json!(name.namespace);
        body["metadata"]["name"] = json!(name.name);
        match subject
            .cluster
            .api
            .call(&dry_run::request(of, &name, &body, false, true))
            .await
        {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.push(format!(
                    "namespace `{namespace}` does not exist yet ({whose}); checked by the server as if in `default`"
                ));
                draft.notes.extend(answer.warnings);
            }
            Err(error) if triage::cause(&error) == Cause::Invalid => return Err(subject.refusal(&error)),
            Err(_) => draft.notes.push(format!(
                "namespace `{namespace}` does not exist yet ({whose}); not checked by the server"
            )),
        }
        Ok(())
    }

    /// The cluster does not know the kind: the plan's own CustomResourceDefinition may.
    fn unknown_kind(
        &self,
        subject: &Subject,
        mut draft: Draft,
        body: &Map<String, Value>,
    ) -> Result<Draft, Failure> {
        let (api_version, kind) = (identity::text(body, "apiVersion"), identity::text(body, "kind"));
        let cluster = &subject.cluster.api.name;
        let definition = self
            .definitions
            .iter()
            .find(|d| custom::defines(d, api_version, kind));
        let is_built_in = !subject.name.group.contains('.') || subject.name.group.ends_with(".k8s.io");
        match definition.map(|definition| custom::check(definition, body)) {
            Some(Some(wrong)) if !wrong.is_empty() => {
                return Err(
                    Failure::new(ErrorKind::Spec, format!("{}: {}", subject.title(), wrong.join("; ")))
                        .hint("the schema is that of the CustomResourceDefinition in the same stack"),
                );
            }
            Some(Some(_)) => {
                draft.validated = Validation::Schema;
                draft.notes.push("its kind is defined by this plan: checked against that schema".to_owned());
            }
            Some(None) => {
                draft.notes.push("its kind is defined by this plan, without a schema: not checked".to_owned());
            }
            None if is_built_in => {
                let message = format!("cluster `{cluster}` knows no kind `{kind}` in `{api_version}`");
                return Err(Failure::new(ErrorKind::Spec, message)
                    .hint("`kubectl api-resources` lists the kinds it knows"));
            }
            None => draft.notes.push(format!(
                "cluster `{cluster}` does not know `{kind}` in `{api_version}`, and this stack does not define it: \
                 not checked; another stack must define it before"
            )),
        }
        Ok(draft)
    }
}

/// A name that nothing else has, the same for the same object.
pub(super) fn scratch_name(body: &Value) -> String {
    format!("konverge-preview-{}", Digest::of_json(body).short())
}

/// What references may read of an object that a dry-run made: what it was asked for and its defaults; what the server
/// chooses anew each time is not known.
pub(super) fn expected(mut dry: Value, body: &Value) -> Value {
    let unknown = value::unknown;
    if let Some(metadata) = dry["metadata"].as_object_mut() {
        metadata.shift_remove("managedFields");
        for key in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.insert(key.to_owned(), unknown());
        }
    }
    dry["status"] = unknown();
    let asked = &body["spec"];
    match dry["kind"].as_str().unwrap_or_default() {
        "Service" => {
            for key in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
                if !dry["spec"][key].is_null() && asked[key].is_null() && dry["spec"][key] != "None" {
                    dry["spec"][key] = unknown();
                }
            }
            let fixed = |port: &Map<String, Value>| {
                let mut asked = asked["ports"].as_array().into_iter().flatten();
                asked.any(|p| Some(&p["port"]) == port.get("port") && !p["nodePort"].is_null())
            };
            let ports = dry["spec"]["ports"].as_array_mut();
            for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                if port.contains_key("nodePort") && !fixed(port) {
                    port.insert("nodePort".to_owned(), unknown());
                }
            }
        }
        "Job" if asked["manualSelector"] != true => {
            dry["spec"]["selector"] = unknown();
            if let Some(labels) = dry
                .pointer_mut("/spec/template/metadata/labels")
                .and_then(Value::as_object_mut)
            {
                for (_, value) in labels
                    .iter_mut()
                    .filter(|(key, _)| key.ends_with("controller-uid"))
                {
                    *value = unknown();
                }
            }
        }
        _ => {}
    }
    dry
}
