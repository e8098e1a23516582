//! The pages.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    extract::{Path, Query, State},
    http::HeaderMap,
    response::Response,
    routing::get,
};
use konverge_base::model::StackId;
use konverge_portal::{
    StackCondition, StackIndex,
    html::{self, PageMode, StackPage},
    site_path,
};

use super::{
    answer::{Form, RequestError, answer},
    cache::{Body, within_deadline},
    shared::Shared,
};

/// The words after the question mark of an address.
pub(super) type Words = HashMap<String, String>;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(overview))
        .route("/index.html", get(overview))
        .route("/search.html", get(search))
        .route("/kinds/{file}", get(kind))
        .route("/stacks/{folder}", get(stack))
        .route("/stacks/{folder}/", get(stack))
        .route("/stacks/{folder}/{file}", get(file_of_stack))
}

/// The filter of an address.
pub(super) fn filter(words: &Words) -> Result<(Option<StackCondition>, &str), RequestError> {
    let key = words
        .get("condition")
        .map(String::as_str)
        .filter(|key| !key.is_empty());
    let condition = match key {
        None => None,
        Some(key) => Some(StackCondition::from_key(key).ok_or_else(|| {
            let known: Vec<_> = StackCondition::ALL
                .iter()
                .map(|condition| condition.key())
                .collect();
            RequestError::wrong(
                "this condition does not exist",
                &format!("known are {}", known.join(", ")),
            )
        })?),
    };
    Ok((condition, words.get("q").map_or("", String::as_str)))
}

async fn overview(
    State(shared): State<Arc<Shared>>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let (condition, text) = filter(&words)?;
        let index = shared.index().await?;
        let total = &index.overview;
        let is_plain = condition.is_none() && text.is_empty();
        let address = format!("overview {}", index.json.etag);
        if let Some(body) = shared.bodies.get(&address).filter(|_| is_plain) {
            return Ok(body);
        }
        let shown = match is_plain {
            true => None,
            false => Some(total.filtered(condition, text)),
        };
        let shown = shown.as_ref().unwrap_or(total);
        let body = Body::new(
            html::overview(shown, total, PageMode::Served, condition, text),
            None,
        );
        if is_plain {
            shared.bodies.put(address, &body);
        }
        Ok(body)
    };
    answer(make.await, Form::Page(0), &headers)
}

async fn search(
    State(shared): State<Arc<Shared>>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        let index = shared.index().await?;
        let text = words.get("q").map_or("", String::as_str);
        let result = (!text.trim().is_empty()).then(|| index.search.search(text));
        Ok(Body::new(
            html::search(&index.search, PageMode::Served, text, result.as_ref()),
            None,
        ))
    };
    answer(make.await, Form::Page(0), &headers)
}

async fn kind(State(shared): State<Arc<Shared>>, Path(file): Path<String>, headers: HeaderMap) -> Response {
    let make = async {
        let index = shared.index().await?;
        let path = format!("kinds/{file}");
        let kind = index.search.listings().find(|kind| site_path::kind(kind) == path);
        let page = kind.and_then(|kind| html::kind(&index.search, kind));
        page.map(|page| Body::new(page, None))
            .ok_or_else(|| RequestError::Unknown("this kind"))
    };
    answer(make.await, Form::Page(1), &headers)
}

/// The stack whose pages lie in a folder.
fn stack_of(index: &StackIndex, folder: &str) -> Result<StackId, RequestError> {
    let rows = &index.overview.stacks;
    let row = rows.iter().find(|row| site_path::slug(row.id.as_str()) == folder);
    row.map(|row| row.id.clone())
        .ok_or_else(|| RequestError::Unknown("this stack"))
}

async fn stack(
    State(shared): State<Arc<Shared>>,
    Path(folder): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer(stack_page(&shared, &folder).await, Form::Page(2), &headers)
}

async fn stack_page(shared: &Shared, folder: &str) -> Result<Body, RequestError> {
    let index = shared.index().await?;
    let id = stack_of(&index, folder)?;
    let version = index.fingerprints.get(&id).map(ToString::to_string);
    let address = format!("page {id} {}", version.unwrap_or_default());
    if let Some(body) = shared.bodies.get(&address) {
        return Ok(body);
    }
    let _permit = shared.reads.acquire().await;
    let view = within_deadline(shared.source().stack(&index, &id)).await?;
    let view = view.ok_or_else(|| RequestError::Unknown("this stack"))?;
    let pairs: Vec<_> = view
        .history
        .windows(2)
        .filter_map(|pair| match pair {
            [later, earlier] => Some((earlier.serial, later.serial)),
            _ => None,
        })
        .collect();
    let page = StackPage {
        view: &view,
        differences: &pairs,
        mode: PageMode::Served,
    };
    let body = Body::new(html::stack(&page), index.serials.get(&id).copied());
    shared.bodies.put(address, &body);
    Ok(body)
}

/// `index.html`, `FROM-TO.html`, or `difference.html?from=FROM&to=TO`.
async fn file_of_stack(
    State(shared): State<Arc<Shared>>,
    Path((folder, file)): Path<(String, String)>,
    Query(words): Query<Words>,
    headers: HeaderMap,
) -> Response {
    let make = async {
        if file == "index.html" {
            return stack_page(&shared, &folder).await;
        }
        let index = shared.index().await?;
        let id = stack_of(&index, &folder)?;
        let (from, to) = match file.as_str() {
            "difference.html" => serials(&words)?,
            file => pair_of(file).ok_or_else(|| RequestError::Unknown("this page"))?,
        };
        let _permit = shared.reads.acquire().await;
        let difference = within_deadline(shared.source().difference(&id, from, to)).await?;
        let difference = difference.ok_or(RequestError::Unknown("one of these serials"))?;
        Ok(Body::new(html::difference(&difference), None))
    };
    answer(make.await, Form::Page(2), &headers)
}

fn pair_of(file: &str) -> Option<(u64, u64)> {
    let (from, to) = file.strip_suffix(".html")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// The two serials of an address.
pub(super) fn serials(words: &Words) -> Result<(u64, u64), RequestError> {
    let serial = |name: &str| {
        let given = words.get(name).and_then(|text| text.parse().ok());
        given.ok_or_else(|| RequestError::wrong(format!("`{name}` must be a serial"), "add `?from=3&to=4`"))
    };
    Ok((serial("from")?, serial("to")?))
}
