//! The responses of the HTTP front.

use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::agents::front::body::{Body, Events, NotRead};
use crate::mcp::rpc::{self, RpcError, Unreadable};

/// Tells proxies not to hold events back.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A status, and nothing else.
#[must_use]
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// The same with one more header.
#[must_use]
pub fn with(mut response: Response<Body>, name: HeaderName, value: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

/// One message.
#[must_use]
pub fn json(status: u16, text: String) -> Response<Body> {
    let mut response = Response::new(Body::Full(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error about a message whose id is not known.
#[must_use]
pub fn refusal(status: StatusCode, error: &RpcError) -> Response<Body> {
    json(status.as_u16(), rpc::error_response(None, error))
}

/// What is said of a body that is no message.
#[must_use]
pub fn unreadable(what: &Unreadable) -> Response<Body> {
    json(400, rpc::error_response(what.id.as_ref(), &what.error))
}

/// What is said of a body that was not read.
#[must_use]
pub fn not_read(why: NotRead) -> Response<Body> {
    let answer = match why {
        NotRead::TooLong => refusal(StatusCode::PAYLOAD_TOO_LARGE, &rpc::too_long().error),
        NotRead::TooSlow => {
            let error = RpcError::new(rpc::PARSE_ERROR, "the body was not there in time");
            refusal(StatusCode::REQUEST_TIMEOUT, &error)
        }
        NotRead::Broken => refusal(StatusCode::BAD_REQUEST, &RpcError::new(rpc::PARSE_ERROR, "the body broke off")),
    };
    // What is left of the body is not read, so nothing else can come on this connection.
    with(answer, header::CONNECTION, "close")
}

/// An event stream.
#[must_use]
pub fn events(events: Events) -> Response<Body> {
    let mut response = Response::new(Body::Events(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}
