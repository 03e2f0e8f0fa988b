//! The way of a request: to the server, through the faults that apply to it, and its response back to the program.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http_body_util::{BodyExt, Full};
use informer_apiserver::{ApiServer, Status, User};
use serde_json::{Value, json};
use tower::Service;

use crate::check::Check;
use crate::fault::{Extent, Fault, FaultKind};
use crate::network::{BodySender, ConnectionBroken, OutgoingRequest, Reply};
use crate::normal::ANNOTATION_PREFIX;
use crate::request::Operation;
use crate::trace::TraceKind;

use super::{Event, Run, program_name};

/// A connection: the number of the instance and of its request.
pub(crate) type ConnectionId = (u32, u64);

/// Something that arrives at one of the ends of a connection.
#[derive(Debug)]
pub(crate) enum Received {
    /// A request arrives at the server.
    Request(ConnectionId, Box<(http::request::Parts, Bytes)>),
    /// A part of a response arrives at the program.
    Response(ConnectionId, Part),
    /// The program has dropped the response.
    Closed(ConnectionId),
}

/// A part of a response.
#[derive(Debug)]
pub(crate) enum Part {
    Head(Box<http::response::Parts>),
    Data(Bytes),
    End,
    Broken,
}

/// The open connections.
#[derive(Default)]
pub(crate) struct Connections {
    open: BTreeMap<ConnectionId, Connection>,
    /// Responses of the server that have not been sent yet.
    responses: Arc<Mutex<VecDeque<(ConnectionId, Part)>>>,
}

struct Connection {
    operation: Operation,
    reply: Option<Reply>,
    body: Option<BodySender>,
    /// The task that handles the request.
    task: Option<u64>,
    /// The time of the last part of the response; parts arrive in order.
    last_part: Duration,
    fault: Option<Fault>,
    /// The program has dropped the response.
    is_closed: bool,
}

impl Run<'_> {
    /// Sends a request of an instance to the server, unless a fault prevents it.
    pub(crate) fn open_connection(
        &mut self,
        number: u32,
        request: OutgoingRequest,
        operation: Operation,
        counted: Extent,
    ) {
        let id = (number, request.id);
        let mut connection = Connection {
            operation,
            reply: Some(request.reply),
            body: None,
            task: None,
            last_part: self.now,
            fault: None,
            is_closed: false,
        };
        let arrival = self.now + self.latency();
        if self.injection.is_down(self.now) {
            self.connections.open.insert(id, connection);
            self.events.push(arrival, Event::Connection(Received::Response(id, Part::Broken)));
            return;
        }
        if self.injection.is_unserved(&connection.operation, self.now) {
            self.connections.open.insert(id, connection);
            self.respond_with(
                id,
                404,
                None,
                ("text/plain; charset=utf-8", "404 page not found\n".to_owned()),
            );
            return;
        }
        if self.injection.expires(&connection.operation, self.now) {
            return self.respond_expired(id, connection);
        }
        if let Some(fault) = self.take_request_fault(&connection.operation, counted) {
            if fault.kind == FaultKind::RestartBeforeRequest {
                return self.kill(number, Some(fault.duration));
            }
            connection.fault = Some(fault.clone());
            let status = match fault.kind {
                FaultKind::TooManyRequests => Some((429, "TooManyRequests", "please try again later")),
                FaultKind::InternalError => Some((500, "InternalError", "etcdserver: request timed out")),
                FaultKind::Unavailable => {
                    Some((503, "ServiceUnavailable", "the server is currently unable to handle the request"))
                }
                _ => None,
            };
            if let Some((code, reason, message)) = status {
                self.connections.open.insert(id, connection);
                let retry = (code == 429).then_some(fault.duration.as_secs());
                return self.respond(id, &Status::new(code, reason, message), retry);
            }
            if fault.kind == FaultKind::Timeout {
                self.connections.open.insert(id, connection);
                let at = self.now + fault.duration;
                return self.events.push(at, Event::Connection(Received::Response(id, Part::Broken)));
            }
        }
        self.connections.open.insert(id, connection);
        let content = Box::new((request.head, request.body));
        self.events.push(arrival, Event::Connection(Received::Request(id, content)));
    }

    pub(crate) fn handle_connection(&mut self, received: Received) {
        match received {
            Received::Request(id, content) => self.receive_request(id, *content),
            Received::Response(id, part) => self.deliver(id, part),
            Received::Closed(id) => {
                // A write that is still on its way arrives all the same.
                let Some(connection) = self.connections.open.get_mut(&id) else { return };
                connection.is_closed = true;
                if connection.task.is_some()
                    && let Some(connection) = self.connections.open.remove(&id)
                {
                    self.stop_task(&connection);
                }
            }
        }
    }

    /// Hands a request to the server.
    fn receive_request(&mut self, id: ConnectionId, (mut head, body): (http::request::Parts, Bytes)) {
        let operation = match self.connections.open.get(&id) {
            Some(connection) => connection.operation.clone(),
            // The program is gone. Its writes still arrive.
            None => Operation::parse(&head),
        };
        let is_open = self.connections.open.get(&id).is_some_and(|connection| !connection.is_closed);
        if (!is_open && !operation.is_write()) || self.injection.is_down(self.now) {
            if is_open {
                self.events.push(self.now, Event::Connection(Received::Response(id, Part::Broken)));
            }
            return;
        }
        if let Some(problem) = self.knowledge.deletion_problem(id.0, &operation, &body) {
            self.fail_check(Check::DeletedIncarnation, problem);
        }
        // Only references that the object does not have already: a program may write back what it has read.
        let kept = self.stored_owners(&operation);
        if let Some(problem) = self.knowledge.owner_problem(id.0, self.now, &operation, &body, &kept) {
            self.fail_check(Check::OwnerReferences, problem);
        }
        let fault = self.connections.open.get(&id).and_then(|connection| connection.fault.as_ref());
        if fault.is_some_and(|fault| fault.kind == FaultKind::ConflictingWrite) {
            let changed = change_annotation(&self.server, &operation);
            let text =
                if changed { "another client changes the object" } else { "there is no object to change" };
            self.trace.push(TraceKind::Fault, "other client", format!("{text} ({operation})"));
        }
        // JSON is readable in reports, and so are bodies that are not compressed. Every client accepts both.
        head.headers.remove(ACCEPT_ENCODING);
        if head
            .headers
            .get(ACCEPT)
            .is_some_and(|accept| accept.to_str().is_ok_and(|text| text.contains("protobuf")))
        {
            head.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
        let mut service = self.server.service_for(User::admin(program_name(id.0)));
        let responses = self.connections.responses.clone();
        let push = move |part: Part| {
            responses.lock().unwrap_or_else(PoisonError::into_inner).push_back((id, part));
        };
        let task = self.executor.start(async move {
            let request = http::Request::from_parts(head, Full::new(body));
            let Ok(response) = service.call(request).await else { return push(Part::Broken) };
            let (head, body) = response.into_parts();
            push(Part::Head(Box::new(head)));
            let mut body = std::pin::pin!(body);
            while let Some(frame) = body.frame().await {
                match frame.map(http_body::Frame::into_data) {
                    Ok(Ok(data)) => push(Part::Data(data)),
                    Ok(Err(_)) => {}
                    Err(_) => return push(Part::Broken),
                }
            }
            push(Part::End);
        });
        if let Some(connection) = self.connections.open.get_mut(&id) {
            connection.task = Some(task);
        }
    }

    /// Sends what the server has responded to the programs. Returns whether there was anything.
    pub(crate) fn forward_responses(&mut self) -> bool {
        let mut any = false;
        loop {
            let next = self.connections.responses.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((id, part)) = next else { return any };
            any = true;
            self.forward(id, part);
        }
    }

    fn forward(&mut self, id: ConnectionId, part: Part) {
        let latency = self.latency();
        let Some(connection) = self.connections.open.get_mut(&id) else { return };
        let is_success = matches!(&part, Part::Head(head) if head.status.is_success());
        if is_success && connection.operation.is_foreground_write() {
            self.last_write = self.now;
        }
        let mut at = (self.now + latency).max(connection.last_part);
        if let Some(fault) = connection.fault.clone() {
            match fault.kind {
                FaultKind::RestartAfterApply if is_success => return self.kill(id.0, Some(fault.duration)),
                FaultKind::LostResponse => {
                    if matches!(part, Part::Head(_)) {
                        self.events.push(at, Event::Connection(Received::Response(id, Part::Broken)));
                    }
                    return;
                }
                FaultKind::SlowResponse if matches!(part, Part::Head(_)) => at += fault.duration,
                _ => {}
            }
        }
        if connection.operation.is_watch() && !matches!(part, Part::Head(_)) {
            at = at.max(self.injection.watches_delayed_until());
        }
        connection.last_part = at;
        self.events.push(at, Event::Connection(Received::Response(id, part)));
    }

    /// Delivers a part of a response to the program.
    fn deliver(&mut self, id: ConnectionId, part: Part) {
        let is_alive = self.running.contains_key(&id.0);
        let Some(connection) = self.connections.open.get_mut(&id).filter(|_| is_alive) else { return };
        let program = program_name(id.0);
        match part {
            Part::Head(head) => {
                let text = format!("{} {}", head.status.as_u16(), connection.operation);
                self.trace.push(TraceKind::Response, program, text);
                if let Some(reply) = connection.reply.take() {
                    connection.body = reply.respond(*head);
                }
            }
            Part::Data(data) => {
                if connection.operation.is_watch() && self.plan.is_detailed {
                    self.trace.push(TraceKind::Watch, program, frames(&connection.operation, &data));
                }
                if connection.body.as_ref().is_some_and(|body| body.send(Ok(data.clone()))) {
                    self.knowledge.record_shown(id.0, self.now, data);
                }
            }
            Part::End | Part::Broken => {
                if matches!(part, Part::Broken) {
                    let text = format!("connection broken: {}", connection.operation);
                    self.trace.push(TraceKind::Response, program, text);
                    if let Some(body) = &connection.body {
                        body.send(Err(ConnectionBroken));
                    }
                } else if connection.operation.is_watch() {
                    self.trace.push(TraceKind::Watch, program, format!("{} ends", connection.operation));
                }
                let Some(connection) = self.connections.open.remove(&id) else { return };
                self.stop_task(&connection);
                self.restart_after_response(id.0, connection.fault.as_ref());
            }
        }
    }

    /// Kills an instance that has just received a response. It may still use the response, but sends nothing more.
    fn restart_after_response(&mut self, number: u32, fault: Option<&Fault>) {
        let Some(fault) = fault.filter(|fault| fault.kind == FaultKind::RestartAfterResponse) else { return };
        if let Some(running) = self.running.get_mut(&number) {
            running.is_muted = true;
        }
        let at = self.now + Duration::from_millis(1);
        self.events.push(at, Event::Kill(number, Some(fault.duration)));
    }

    /// Breaks the open watches that meet a condition, and discards frames that are on their way.
    pub(crate) fn break_watches(&mut self, condition: impl Fn(&Operation) -> bool) {
        let is_broken = |operation: &Operation| operation.is_watch() && condition(operation);
        let watches = self.connections.open.iter().filter(|(_, connection)| is_broken(&connection.operation));
        for id in watches.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.deliver(id, Part::Broken);
        }
    }

    /// Breaks all open connections.
    pub(crate) fn break_connections(&mut self) {
        for id in self.connections.open.keys().copied().collect::<Vec<_>>() {
            self.deliver(id, Part::Broken);
        }
    }

    /// Forgets the connections of an instance that is gone.
    pub(crate) fn close_connections(&mut self, number: u32) {
        let ids = self.connections.open.range((number, 0)..=(number, u64::MAX)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            if let Some(connection) = self.connections.open.remove(&id) {
                self.stop_task(&connection);
            }
        }
    }

    fn stop_task(&mut self, connection: &Connection) {
        if let Some(task) = connection.task {
            self.executor.stop(task);
        }
    }

    /// Responds that the version of a request has expired.
    fn respond_expired(&mut self, id: ConnectionId, connection: Connection) {
        let operation = &connection.operation;
        self.trace.push(TraceKind::Fault, "fault", format!("{}: {operation}", FaultKind::Expired));
        self.result.coverage.count_fault(FaultKind::Expired, Some(operation));
        let message = "The resourceVersion for the provided list is too old.";
        let status = status_body(&Status::new(410, "Expired", message));
        // kube-apiserver accepts the watch, and sends the error in a frame.
        let (code, body) = if operation.is_watch() {
            (200, format!("{}\n", json!({"type": "ERROR", "object": status})))
        } else {
            (410, status.to_string())
        };
        self.connections.open.insert(id, connection);
        self.respond_with(id, code, None, ("application/json", body));
    }

    /// Sends a status that does not come from the server.
    fn respond(&mut self, id: ConnectionId, status: &Status, retry_after: Option<u64>) {
        let body = status_body(status).to_string();
        self.respond_with(id, status.code, retry_after, ("application/json", body));
    }

    /// Sends a response that does not come from the server, with a body and its type.
    fn respond_with(&mut self, id: ConnectionId, code: u16, retry_after: Option<u64>, body: (&str, String)) {
        let (content_type, body) = body;
        let response = http::Response::builder().status(code).header(CONTENT_TYPE, content_type).body(());
        let mut response = response.unwrap_or_default();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        let at = self.now + self.latency() + self.latency();
        for part in [Part::Head(Box::new(response.into_parts().0)), Part::Data(body.into()), Part::End] {
            self.events.push(at, Event::Connection(Received::Response(id, part)));
        }
    }
}

fn status_body(status: &Status) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.code,
        "reason": status.reason, "message": status.message,
    })
}

/// Changes an annotation of the object that a request is about, as another client could do. Returns whether it
/// exists.
fn change_annotation(server: &ApiServer, operation: &Operation) -> bool {
    let namespace = Some(operation.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let found = server.get(&operation.api_version(), &operation.plural, namespace, &operation.name);
    let Some(mut object) = found else { return false };
    let version = object["metadata"]["resourceVersion"].clone();
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[format!("{ANNOTATION_PREFIX}changed-at")] = version;
    server.update(&object).is_ok()
}

/// Describes frames of a watch.
fn frames(operation: &Operation, data: &[u8]) -> String {
    let frames = data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let texts: Vec<String> = frames.map(|line| frame(line).unwrap_or_else(|| "…".to_owned())).collect();
    format!("{}: {}", operation.label(), texts.join(", "))
}

fn frame(line: &[u8]) -> Option<String> {
    let frame: Value = serde_json::from_slice(line).ok()?;
    let kind = frame["type"].as_str()?;
    let metadata = &frame["object"]["metadata"];
    let version = metadata["resourceVersion"].as_str().unwrap_or_default();
    let name = metadata["name"].as_str().unwrap_or_default();
    Some(match (kind, metadata["namespace"].as_str()) {
        ("BOOKMARK", _) => format!("BOOKMARK v{version}"),
        ("ERROR", _) => format!("ERROR {}", frame["object"]["code"]),
        (_, Some(namespace)) => format!("{kind} {namespace}/{name} v{version}"),
        (_, None) => format!("{kind} {name} v{version}"),
    })
}
