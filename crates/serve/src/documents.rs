//! The content of pages and JSON documents, made by one function for both formats.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{FromRequestParts, Query},
    http::{HeaderMap, request::Parts},
    response::{IntoResponse, Response},
};
use konverge_base::model::StackId;
use konverge_portal::{
    AUDIT_ENTRIES, AUDIT_ROWS, AuditDocument, Overview, StackCondition, StackDetails, StackOrder, audit_csv,
    html::{self, StackPage},
};
use konverge_report::json;
use serde::Serialize;

use super::{
    access::Access,
    answer::{Form, RequestError, found},
    cache::{Body, KnownIndex, within_deadline},
    client_address::ClientAddress,
    shared::Shared,
};

/// The query parameters of a URL.
pub(super) type Words = HashMap<String, String>;

/// A request: the sender, the format of the response, and the shared state.
pub(super) struct Asked {
    pub shared: Arc<Shared>,
    pub access: Access,
    pub form: Form,
    pub words: Words,
    pub headers: HeaderMap,
    pub client: Option<ClientAddress>,
}

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Response> {
        let form = Form::from_path(parts.uri.path());
        // Without `Access` the middleware has not identified the sender, so the request is refused.
        let access = parts
            .extensions
            .get::<Access>()
            .cloned()
            .ok_or_else(|| RequestError::signed_out("no person is signed in").answer(form))?;
        let words = Query::try_from_uri(&parts.uri).map_err(IntoResponse::into_response)?;
        Ok(Self {
            shared: Arc::clone(shared),
            access,
            form,
            words: words.0,
            headers: parts.headers.clone(),
            client: parts.extensions.get::<ClientAddress>().cloned(),
        })
    }
}

pub(super) async fn overview(asked: Asked) -> Response {
    asked.respond(asked.overview().await)
}

pub(super) async fn search(asked: Asked) -> Response {
    asked.respond(asked.search().await)
}

pub(super) async fn audit(asked: Asked) -> Response {
    asked.respond(asked.audit().await)
}

pub(super) async fn rollouts(asked: Asked) -> Response {
    asked.respond(asked.rollouts().await)
}

pub(super) async fn trends(asked: Asked) -> Response {
    asked.respond(asked.trends().await)
}

pub(super) async fn permissions(asked: Asked) -> Response {
    asked.respond(asked.permissions().await)
}

/// Parses the filter in the query.
fn filter(words: &Words) -> Result<(Option<StackCondition>, &str), RequestError> {
    let key = words
        .get("condition")
        .map(String::as_str)
        .filter(|key| !key.is_empty());
    let condition = match key {
        None => None,
        Some(key) => Some(StackCondition::from_key(key).ok_or_else(|| {
            let known = StackCondition::ALL.map(|condition| condition.to_string());
            RequestError::wrong(
                "the value of `condition` is unknown",
                &format!("known are {}", known.join(", ")),
            )
        })?),
    };
    Ok((condition, words.get("q").map_or("", String::as_str)))
}

/// Parses the two serials in the query.
pub(super) fn serials(words: &Words) -> Result<(u64, u64), RequestError> {
    let serial = |name: &str| {
        let given = words.get(name).and_then(|text| text.parse().ok());
        given.ok_or_else(|| RequestError::wrong(format!("`{name}` must be a serial"), "add `?from=3&to=4`"))
    };
    Ok((serial("from")?, serial("to")?))
}

impl Asked {
    /// Renders a body or an error in the format that was asked for.
    pub(super) fn respond(&self, made: Result<Body, RequestError>) -> Response {
        match made {
            Ok(body) => found(&body, self.form, &self.headers),
            Err(error) => error.answer(self.form),
        }
    }

    /// Returns the cache key of a rendered response. All users who may see the same stacks share it.
    fn address(&self, what: &str) -> String {
        format!("{what} {:?} {:?}", self.form, self.access.patterns())
    }

    fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Renders a document as JSON, or as its page.
    fn rendered<T: Serialize>(&self, document: &T, page: impl FnOnce(&T) -> String) -> String {
        if self.is_json() {
            json::document(document)
        } else {
            page(document)
        }
    }

    /// Returns the body that the cache has for a key, or makes it and keeps it.
    async fn cached(
        &self,
        address: String,
        made: impl Future<Output = Result<Body, RequestError>>,
    ) -> Result<Body, RequestError> {
        if let Some(body) = self.shared.bodies.get(&address) {
            return Ok(body);
        }
        let body = made.await?;
        self.shared.bodies.put(address, &body);
        Ok(body)
    }

    /// Responds with all stacks, or with those that match the filter.
    async fn overview(&self) -> Result<Body, RequestError> {
        let (condition, text) = filter(&self.words)?;
        let index = self.shared.index(&self.access).await?;
        let total = &index.overview;
        let is_plain = condition.is_none() && text.is_empty();
        if is_plain && self.is_json() {
            return Ok(index.json.clone());
        }
        let made = |shown: &Overview| {
            let page = |shown: &_| html::overview(shown, total, self.shared.mode(), condition, text);
            Body::new(self.rendered(shown, page), None)
        };
        if !is_plain {
            return Ok(made(&total.filtered(condition, text)));
        }
        let address = format!("overview {}", index.json.etag);
        self.cached(address, async { Ok(made(total)) }).await
    }

    /// Responds with a search result. Without a text to search, the page is the form.
    async fn search(&self) -> Result<Body, RequestError> {
        let text = self.words.get("q").map_or("", String::as_str);
        let is_empty = text.trim().is_empty();
        if is_empty && self.is_json() {
            return Err(RequestError::wrong("`q` must hold a word", "add `?q=nginx`"));
        }
        let index = self.shared.index(&self.access).await?;
        let result = (!is_empty).then(|| index.search.search(text));
        let made = match (self.form, &result) {
            (Form::Json, Some(result)) => json::document(result),
            _ => html::search(&index.search, self.shared.mode(), text, result.as_ref()),
        };
        Ok(Body::new(made, None))
    }

    /// Reads a stack, if the sender may see it.
    pub(super) async fn details(
        &self,
        index: &KnownIndex,
        id: &StackId,
    ) -> Result<StackDetails, RequestError> {
        let _permit = self.shared.reads.acquire().await;
        let view = within_deadline(self.shared.source().stack(index, id)).await?;
        view.ok_or_else(|| RequestError::unknown("this stack"))
    }

    /// Responds with one stack.
    pub(super) async fn stack(&self, id: &StackId) -> Result<Body, RequestError> {
        let index = self.shared.index(&self.access).await?;
        if index.overview.row(id).is_none() {
            return Err(RequestError::unknown("this stack"));
        }
        let version = index.fingerprints.get(id).map(ToString::to_string);
        let form = if self.is_json() { "json" } else { "page" };
        let address = format!("{form} {id} {}", version.unwrap_or_default());
        let made = async {
            let view = self.details(&index, id).await?;
            let made = self.rendered(&view, |view| {
                let pairs = view.history.windows(2).filter_map(|pair| match pair {
                    [later, earlier] => Some((earlier.serial, later.serial)),
                    _ => None,
                });
                html::stack(&StackPage {
                    view,
                    differences: &pairs.collect::<Vec<_>>(),
                    older: 0,
                    mode: self.shared.mode(),
                })
            });
            Ok(Body::new(made, index.serials.get(id).copied()))
        };
        self.cached(address, made).await
    }

    /// Responds with the difference of two serials of a stack.
    pub(super) async fn difference(&self, id: &StackId, from: u64, to: u64) -> Result<Body, RequestError> {
        let index = self.shared.index(&self.access).await?;
        if index.overview.row(id).is_none() {
            return Err(RequestError::unknown("this stack"));
        }
        let _permit = self.shared.reads.acquire().await;
        let read = self.shared.source().difference(id, from, to);
        let difference = within_deadline(read).await?;
        let difference = difference.ok_or_else(|| RequestError::unknown("one of these serials"))?;
        Ok(Body::new(self.rendered(&difference, html::difference), None))
    }

    /// Responds with the audit entries of stacks that the sender may see. A freeze affects all stacks, so everybody
    /// sees its entry.
    async fn audit(&self) -> Result<Body, RequestError> {
        let actions = self
            .shared
            .actions()
            .ok_or_else(|| RequestError::unknown("this address"))?;
        let at_most = match self.form {
            Form::Csv => AUDIT_ROWS,
            Form::Page(_) | Form::Json => AUDIT_ENTRIES,
        };
        let mut audit: AuditDocument = within_deadline(actions.audit(at_most)).await?;
        audit.entries.retain(|entry| {
            let folder = entry.folder.as_ref();
            folder.map_or(entry.stack.is_none(), |folder| self.access.may_see(folder))
        });
        if !self.access.sees_all() {
            audit.notices.clear();
        }
        let made = match self.form {
            Form::Json => json::document(&audit),
            Form::Csv => audit_csv(&audit),
            Form::Page(_) => html::audit(&audit),
        };
        Ok(Body::new(made, None))
    }

    /// Responds with the table of all stacks.
    pub(super) async fn stacks(&self, order: StackOrder) -> Result<Body, RequestError> {
        let index = self.shared.index(&self.access).await?;
        let address = format!("{} {}", order.key(), index.json.etag);
        let page = async {
            Ok(Body::new(
                html::stacks(&index.overview, order, self.shared.mode()),
                None,
            ))
        };
        self.cached(address, page).await
    }

    /// Responds with the rollouts of stacks that the sender may see.
    async fn rollouts(&self) -> Result<Body, RequestError> {
        let made = async {
            let index = self.shared.index(&self.access).await?;
            let _permit = self.shared.reads.acquire().await;
            let mut document = within_deadline(self.shared.source().rollouts()).await?;
            if !self.access.sees_all() {
                document = document.restricted(|folder| self.access.may_see(folder));
            }
            let forge = index.overview.forge.as_ref();
            let page = |document: &_| html::rollouts(document, forge, self.shared.mode());
            Ok(Body::new(self.rendered(&document, page), None))
        };
        self.cached(self.address("rollouts"), made).await
    }

    /// Responds with the trends of the stacks that the sender may see.
    async fn trends(&self) -> Result<Body, RequestError> {
        let made = async {
            let index = self.shared.index(&self.access).await?;
            let _permit = self.shared.reads.acquire().await;
            let source = self.shared.source();
            let trends = within_deadline(source.trends(&index, self.access.sees_all())).await?;
            let page = |trends: &_| html::trends(trends, self.shared.mode());
            Ok(Body::new(self.rendered(&trends, page), None))
        };
        self.cached(self.address("trends"), made).await
    }

    /// Responds with the permissions. Only for somebody who may see all stacks, because it names people, stores and
    /// folders of all.
    async fn permissions(&self) -> Result<Body, RequestError> {
        if !self.access.sees_all() {
            return Err(RequestError::forbidden(
                "only people who may see every stack may see the permissions",
                "add a role for `**` to `portal.roles`",
            ));
        }
        let index = self.shared.index(&self.access).await?;
        let document = self.shared.source().permissions().await?;
        let made = match (self.form, &document) {
            (Form::Json, Some(document)) => json::document(document),
            (Form::Json, None) => return Err(RequestError::unknown("the default branch")),
            _ => html::permissions(
                document.as_ref(),
                index.overview.forge.as_ref(),
                self.shared.mode(),
            ),
        };
        Ok(Body::new(made, None))
    }
}
