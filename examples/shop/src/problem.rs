//! [`Problem`]: the answer that a caller reads when something went wrong (RFC 9457).

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An answer of the type `application/problem+json`.
///
/// `code` is for programs, `detail` is for people. Neither names a lock, a holder or a server: that would show a caller how the shop is
/// built, and a lock's name may contain secrets of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of the answer.
    pub status: StatusCode,
    /// What happened, as one word for programs.
    pub code: &'static str,
    /// What happened, and what the caller may do.
    pub detail: &'static str,
    /// When another try makes sense, for the header `Retry-After`. Without it a caller should not simply try again.
    pub retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self { status, code, detail, retry_after: None }
    }

    pub(crate) fn retry_after(self, pause: Duration) -> Self {
        Self { retry_after: Some(pause), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let body = json!({
            // The status gives the kind of the problem; `code` says which one it is.
            "type": "about:blank",
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        let json = HeaderValue::from_static("application/problem+json");
        let mut response = (self.status, [(CONTENT_TYPE, json)], body.to_string()).into_response();
        if let Some(pause) = self.retry_after {
            // Whole seconds, rounded up: a caller that tries too early finds the same problem.
            let seconds = pause.as_millis().div_ceil(1000).max(1);
            if let Ok(seconds) = HeaderValue::try_from(seconds.to_string()) {
                response.headers_mut().insert(RETRY_AFTER, seconds);
            }
        }
        response
    }
}
