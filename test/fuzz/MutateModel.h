// Changes a model as a model, where libFuzzer would change bytes, so that what comes out still is one: most changes of bytes
// only break the framing of messages in messages.
#pragma once

#include <google/protobuf/message.h>
#include <random>

namespace zcc {

/// One change somewhere in the message: a field gets a value that another of its kind has, or an odd one; a message (a node,
/// a graph, a function, an attribute) is copied to where one of its kind can stand, however deep, dropped or moved.
void mutateMessage(google::protobuf::Message &m, std::minstd_rand &random);

} // namespace zcc
