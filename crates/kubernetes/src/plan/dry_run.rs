//! Requests the expected object from the server: the same request as an apply, with `dryRun=All`.

use http::Method;
use serde_json::{Map, Value};

use super::super::{
    FIELD_MANAGER,
    api::{
        client::{ApiRequest, ApiResponse},
        cluster::Cluster,
        conflict_path::conflict_path,
        discovery::ResourceType,
        error::ApiError,
        error_classify,
        options::Conflicts,
    },
    object::{blocking_fields::BlockingField, object_ref::ObjectRef},
};
use konverge_base::{
    model::{FieldPath, built_in_groups},
    retry::{self, RetryDecision},
};
use konverge_engine::runtime::Needs;

/// Returns the server-side apply of an object. With `dry` nothing is written; `force` takes over fields of
/// other managers.
pub(crate) fn request(
    of: &ResourceType,
    name: &ObjectRef,
    body: &Value,
    force: bool,
    dry: bool,
) -> ApiRequest {
    request_as(FIELD_MANAGER, of, name, body, force, dry)
}

/// Returns the same request for another field manager.
fn request_as(
    manager: &str,
    of: &ResourceType,
    name: &ObjectRef,
    body: &Value,
    force: bool,
    dry: bool,
) -> ApiRequest {
    let mut request = ApiRequest::get(name.path(of))
        .query("fieldManager", manager)
        .query("fieldValidation", "Strict")
        .applied(body);
    request.method = Method::PATCH;
    if force {
        request = request.query("force", "true");
    }
    if dry {
        request = request.query("dryRun", "All");
    }
    request
}

/// Sends a request. It is repeated if the server refuses only because it does not know yet about a change
/// that this run has just made.
pub(crate) async fn send(
    cluster: &Cluster,
    of: &ResourceType,
    request: &ApiRequest,
    needs: &Needs,
) -> Result<ApiResponse, ApiError> {
    let verdict = |error: &ApiError| {
        if may_pass(error, of, needs) {
            RetryDecision::Retry
        } else {
            RetryDecision::GiveUp
        }
    };
    let policy = retry::RetryPolicy::default();
    policy.run(verdict, || cluster.api.call(request)).await
}

/// Returns true if a refusal may resolve itself: servers learn with a delay of definitions, roles and
/// classes, and that a namespace was deleted and created again.
pub(crate) fn may_pass(error: &ApiError, of: &ResourceType, needs: &Needs) -> bool {
    let is_fresh = matches!(needs, Needs::Done(done) if !done.is_empty());
    is_fresh
        && match error_classify::cause(error) {
            error_classify::RefusalCause::NoKind
            | error_classify::RefusalCause::NoNamespace
            | error_classify::RefusalCause::EndingNamespace => true,
            error_classify::RefusalCause::Other => error.is_code(403) || error.is_code(404),
            // The server may still have the old schema of the kind, so this refusal is not final.
            error_classify::RefusalCause::Invalid => !built_in_groups::is_built_in(&of.group),
            _ => false,
        }
}

/// A dry-run that was sent, as an apply would be.
#[derive(Debug)]
pub(crate) struct SentDryRun {
    /// True if fields of other managers are taken over.
    pub force: bool,
    /// The object that was sent, without the fields that are left to other managers.
    pub body: Value,
    /// Notes for the reader of the plan.
    pub notes: Vec<String>,
}

/// The server's response, and the request that led to it.
#[derive(Debug)]
pub(crate) struct DryRunResponse {
    pub answer: ApiResponse,
    pub sent: SentDryRun,
    /// The fields outside the Spec that this change removes, because the server refuses the Spec because of
    /// them.
    pub blocking: Vec<BlockingField>,
}

/// Reasons why a dry-run failed.
#[derive(Debug)]
pub(crate) enum DryRunRefusal {
    /// Other managers own fields, and the policy is to stop. Each with path and owner.
    Conflicts(Vec<(FieldPath, String)>),
    /// Any other error.
    Api(Box<(ApiError, SentDryRun)>),
}

/// The rules for fields that other managers own.
pub(crate) struct Ownership<'a> {
    /// The field manager that applies.
    pub manager: &'a str,
    /// The object as last applied, whose fields Konverge owned.
    pub prior: Option<&'a Map<String, Value>>,
    /// True if the object is adopted. Then all fields are taken over, because a reviewer sees every path.
    pub adopting: bool,
    /// The policy for all other fields.
    pub policy: Conflicts,
}

/// Sends the dry-run. After a conflict it is sent once more, changed by the policy.
pub(crate) async fn ask(
    cluster: &Cluster,
    of: &ResourceType,
    name: &ObjectRef,
    body: Value,
    ownership: &Ownership<'_>,
    needs: &Needs,
) -> Result<DryRunResponse, DryRunRefusal> {
    let mut sent = SentDryRun {
        force: ownership.adopting,
        body,
        notes: Vec::new(),
    };
    let request = request_as(ownership.manager, of, name, &sent.body, sent.force, true);
    let error = match send(cluster, of, &request, needs).await {
        Err(error) if !error.conflicts().is_empty() => error,
        answer => return answered(answer, sent),
    };
    // The server names the fields that other managers own. The policy decides about each of them, and the
    // request is then sent once more.
    let mut stopped = Vec::new();
    let prior = ownership.prior.cloned().map(Value::Object);
    let SentDryRun { force, body, notes } = &mut sent;
    for cause in error.conflicts() {
        let path = conflict_path(&cause.field);
        let owner = conflict_owner(&cause.message);
        if is_autoscaler(&cause.message, &path) {
            remove(body, &path);
            notes.push(format!(
                "`{path}` is left to the autoscaler, which scaled it last"
            ));
            continue;
        }
        let ours_before = prior.as_ref().is_some_and(|prior| path.get(prior).is_some());
        match ownership.policy {
            Conflicts::Restore | Conflicts::Write if ours_before => {}
            Conflicts::Write => notes.push(format!("`{path}` is taken over from `{owner}`")),
            Conflicts::Leave => {
                remove(body, &path);
                notes.push(format!("`{path}` is left to `{owner}`"));
            }
            Conflicts::Restore | Conflicts::Stop => stopped.push((path, owner)),
        }
    }
    if !stopped.is_empty() {
        stopped.sort();
        return Err(DryRunRefusal::Conflicts(stopped));
    }
    notes.sort();
    *force = true;
    let request = request_as(ownership.manager, of, name, body, true, true);
    answered(cluster.api.call(&request).await, sent)
}

fn answered(
    answer: Result<ApiResponse, ApiError>,
    sent: SentDryRun,
) -> Result<DryRunResponse, DryRunRefusal> {
    match answer {
        Ok(answer) => Ok(DryRunResponse {
            answer,
            sent,
            blocking: Vec::new(),
        }),
        Err(error) => Err(DryRunRefusal::Api(Box::new((error, sent)))),
    }
}

/// Returns the manager in `conflict with "NAME" using …`, with its subresource.
fn conflict_owner(message: &str) -> String {
    let mut quoted = message.split('"').skip(1).step_by(2);
    match (quoted.next(), quoted.next()) {
        (Some(owner), Some(subresource)) if message.contains("with subresource") => {
            format!("{owner} ({subresource})")
        }
        (Some(owner), _) => owner.to_owned(),
        _ => "another manager".to_owned(),
    }
}

/// Returns true if the HorizontalPodAutoscaler owns the field: it writes `replicas` in the scale subresource,
/// as the controller manager.
fn is_autoscaler(message: &str, path: &FieldPath) -> bool {
    *path == "/spec/replicas" && message.contains("\"kube-controller-manager\" with subresource \"scale\"")
}

/// Removes the value at a path from an object; a missing value is not an error.
pub(crate) fn remove(object: &mut Value, path: &FieldPath) {
    if let Some((map, key)) = path.member(object) {
        map.shift_remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::api::error::ApiStatus;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_that_this_run_made_again_may_be_refused_as_the_ending_one() {
        let of = ResourceType {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            plural: "configmaps".to_owned(),
            namespaced: true,
            reports_status: false,
        };
        let refused = |code: u16, message: &str| {
            let body = json!({ "message": message }).to_string();
            ApiError::Status(Box::new(ApiStatus::read(code, body.as_bytes(), None)))
        };
        let needs = vec!["v1:Namespace:n".parse().unwrap()];
        for message in [
            "configmaps \"c\" is forbidden: unable to create new content in namespace n because it is being terminated",
            "namespaces \"n\" not found",
        ] {
            let error = refused(if message.contains("found") { 404 } else { 403 }, message);
            assert!(may_pass(&error, &of, &Needs::Done(needs.clone())), "{message}");
            assert!(!may_pass(&error, &of, &Needs::Done(Vec::new())), "{message}");
            assert!(
                !may_pass(&error, &of, &Needs::Planned(needs.clone())),
                "{message}"
            );
        }
        let quota = refused(403, "pods \"p\" is forbidden: exceeded quota");
        assert!(!may_pass(&quota, &of, &Needs::Done(needs)));
    }

    #[test]
    fn owners_are_read_with_their_subresource() {
        assert_eq!(
            conflict_owner("conflict with \"kubectl-edit\" using apps/v1"),
            "kubectl-edit"
        );
        let scaled = "conflict with \"kube-controller-manager\" with subresource \"scale\" using apps/v1";
        assert_eq!(conflict_owner(scaled), "kube-controller-manager (scale)");
        assert!(
            is_autoscaler(scaled, &"/spec/replicas".into()) && !is_autoscaler(scaled, &"/spec/paused".into())
        );
    }

    #[test]
    fn a_field_left_to_others_is_not_sent() {
        let mut object =
            json!({"spec": {"containers": [{"name": "web", "image": "x", "args": []}], "replicas": 1}});
        remove(&mut object, &"/spec/containers/name=web/image".into());
        remove(&mut object, &"/spec/replicas".into());
        remove(&mut object, &"/spec/nothing/there".into());
        assert_eq!(
            object,
            json!({"spec": {"containers": [{"name": "web", "args": []}]}})
        );
    }
}
