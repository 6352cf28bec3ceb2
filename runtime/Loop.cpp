// The step loop: K micro-batches, the update, the log; evaluation; what is written at the end.
#include "runtime/Clock.h"
#include "runtime/Device.h"
#include "runtime/Elem.h"
#include "runtime/Fail.h"
#include "runtime/Interrupt.h"
#include "runtime/Session.h"
#include "runtime/checkpoint/SavedTensors.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <unistd.h>

int zccrt_late = 0;
int zccrt_first = 1;

namespace zccrt {

template <typename T> void Session::setScalar(int64_t offset, T value) {
  if (offset >= 0)
    arena->set(offset, value);
}

int Session::run() try { return runAll(); } catch (const std::bad_alloc &) {
  if (report)
    report->writeUnfinished("out of memory");
  throw;
} catch (const std::exception &e) {
  finishAfter(e);
  throw;
}

/// What is begun of a checkpoint is of steps that were sound, and every rank that is left is here to finish it.
void Session::finishAfter(const std::exception &e) {
  if (report)
    report->writeUnfinished(e.what());
  if (comm.ranks == 1 || dynamic_cast<const AgreedFailure *>(&e))
    finishSaving();
}

int Session::runAll() {
  // Ranks draw different numbers; those of rank 0 are those of a single rank.
  setScalar(p.seed, o.seed + (static_cast<int64_t>(comm.rank) << 32));
  openGraphs();
  if (data)
    train();
  finishSaving();
  useTrace(nullptr);
  // Before anything else can fail.
  if (!o.exportFile.empty())
    exportWeights(p, exportForm(), spaces->arenas(), comm, exportFile, files, partToExport(),
                  {arena->onHost(p.persistent_bytes), p.arena_bytes[kDevice] - p.persistent_bytes - p.device_library_bytes});
  if (trace)
    attempt([&] { writeTrace(); });
  onSignals(OnSignal::EndAtOnce);
  if (data)
    agreeOnSignal();
  if (!o.report.empty())
    attempt([&] { together([&] { writeReport(); }); });
  if (!stoppedBy && (outputs || onlyEvaluates()))
    attempt([&] { evaluateAll(); });
  if (comm.rank == 0)
    log->finish(written(), stoppedBy);
  if (!stoppedBy && generator)
    generate();
  together([&] {
    if (checkpoints && !checkpoints->error().empty())
      fail("the run's last state is not saved: %s", checkpoints->error().c_str());
  });
  if (!failed.empty())
    throw AgreedFailure(failed);
  return stoppedBy ? exitStatusOf(stoppedBy) : 0;
}

/// One that came after the last step, perhaps to some ranks only.
void Session::agreeOnSignal() {
  const StepEnd mine = {0, signalSeen(), 0, {}};
  comm.exchange(&mine, sizeof mine, ends.data());
  noteSignal();
}

/// The first rank's that got one: some may have got SIGINT, others SIGTERM.
void Session::noteSignal() {
  for (const StepEnd &end : ends)
    noteSignal(end.signal);
}

/// What a rank has got, 0: nothing.
void Session::noteSignal(int64_t signal) {
  if (stoppedBy || !signal)
    return;
  stoppedBy = static_cast<int>(signal);
  awaitSignal();
}

std::vector<std::string> Session::written() const {
  std::vector<std::string> list;
  if (!o.exportFile.empty())
    list.push_back("'" + o.exportFile + "' (export)");
  if (trace && !traceFile.isOpen())
    list.push_back("'" + o.trace + "' (trace)");
  if (report && report->isWritten())
    list.push_back("'" + o.report + "' (report)");
  if (hasOutputs)
    list.push_back("'" + o.outputs + "' (outputs)");
  if (checkpoints && checkpoints->lastStep() > first && checkpoints->isSaved())
    list.push_back("'" + checkpoints->lastFolder() + "' (checkpoint)");
  return list;
}

/// Whether what --eval-data names is evaluated behind no step.
bool Session::onlyEvaluates() const { return o.eval || (!o.evalData.empty() && p.has_loss && (!data || steps <= first)); }

void Session::evaluateAll() {
  StepReport r;
  double begin = now();
  const TrafficMark before = mark();
  evaluate(*evalData, outputs.get(), r, r.samples);
  r.seconds = now() - begin;
  noteTraffic(r, before);
  r.loss = r.evalLoss.value_or(0);
  r.metrics = r.evalMetrics;
  r.step = std::max<int64_t>(0, first - 1);
  if (onlyEvaluates() && comm.rank == 0 && r.evalLoss)
    log->reportEval(r);
  if (onlyEvaluates() && o.stopOnNan)
    checkLoss(r);
  if (outputs) {
    together([&] { outputs->finish(); });
    hasOutputs = true;
  }
}

void Session::generate() {
  takeStatistics(); // all draw the same tokens
  if (comm.rank == 0)
    log->say(format("%lld tokens at temperature %g:", static_cast<long long>(o.generate), o.temperature));
  int error = 0; // told when all ranks are through with the tokens
  together([&] {
    generator->run(*arena, [&](const std::string &text) {
      if (comm.rank == 0 && !error && !writeAll(STDOUT_FILENO, text.data(), text.size()))
        error = errno;
    });
  });
  together([&] {
    if (error)
      fail("cannot write to standard output: %s", strerror(error));
  });
}

void Session::train() {
  onSignals(OnSignal::FinishStep);
  if (trace) {
    comm.barrier(); // from which the times of all ranks count
    trace->start();
    useTrace(trace.get());
  }
  for (int64_t s = first; s < steps && !stoppedBy && failed.empty(); ++s) {
    where.step = s;
    if (trace)
      trace->beginStep(s);
    runStep(s);
    if (trace)
      trace->endStep();
  }
  flush();
  where.step = -1;
}

/// What so many steps have made of parameters and states.
void Session::saveNow(int64_t done) {
  flush();
  save(done);
  if (report)
    report->addCheckpoint(done - 1);
}

/// A step, and what is due behind it.
void Session::runStep(int64_t s) {
  std::optional<StepReport> trained = trainStep(s);
  if (!trained) { // what was trained before is saved and exported all the same
    if (checkpoints && s > first && checkpoints->lastStep() < s)
      saveNow(s);
    return;
  }
  StepReport &r = *trained;
  const bool isDueToSave = isSaveDue(s + 1);
  auto saveSound = [&] {
    if (!o.stopOnNan || !isWrong(r))
      saveNow(s + 1);
  };
  if (isDueToSave)
    saveSound();
  bool last = s + 1 == steps;
  r.last = last || stoppedBy;
  bool isDue = last || (o.evalEvery && (s + 1) % o.evalEvery == 0);
  if (!o.evalData.empty() && p.has_loss && isDue && !stoppedBy) {
    flush();
    const double begin = traceClock();
    if (trace)
      trace->pause();
    attempt([&] { // what was trained is saved and exported all the same
      int64_t samples;
      evaluate(*evalData, nullptr, r, samples);
    });
    const bool ends = stoppedBy || !failed.empty();
    if (ends && checkpoints && !isDueToSave)
      saveSound();
    r.last |= ends;
    if (trace)
      trace->resume();
    traceSpan(Lane::Program, "evaluation", -1, -1, begin);
  }
  if (comm.rank == 0) {
    TraceScope span(Lane::Program, "log");
    log->report(r);
    if (report)
      report->add(r);
  }
  checkLoss(r);
}

/// A function of the program, as a graph of the device's if there are any; while a checkpoint is written the host waits between
/// launches.
void Session::call(void (*function)(char *arena), const char *name, int64_t number) {
  TraceScope span(Lane::Program, name, number);
  if (graphs && !(checkpoints && checkpoints->isUnderWay()))
    graphs->run(function);
  else
    runToEnd(function, *arena);
  zccrt_at(-1);
}

void Session::openGraphs() {
  if (!device() || !o.cudaGraph)
    return;
  const char *why = trace ? "--trace tells the time of each" : p.no_graph;
  if (collectivesAreStaged())
    why = "collectives go by way of the host's memory";
  if (!why)
    graphs = std::make_unique<StepGraphs>(*device(), *arena);
  else if (comm.rank == 0)
    log->say(format("note: launches are given to the GPU one by one, not as CUDA graphs: %s", why));
}

/// Before anything but the next step reads parameters or states.
void Session::flush() {
  if (!leavesUpdates)
    return;
  finishSaving(); // it may still read what is written here
  call(p.flush, "updates of the last step");
  leavesUpdates = false;
}

/// What all ranks took of memory, and what rank 0 has noted of the steps.
void Session::writeReport() {
  std::vector<int64_t> peaks(comm.ranks);
  int64_t mine = residentPeak();
  comm.exchange(&mine, sizeof mine, peaks.data());
  if (!report)
    return;
  std::string notSaved = checkpoints ? checkpoints->error() : "";
  if (notSaved.empty() && checkpoints && !checkpoints->isSaved())
    notSaved = "another rank could not write its part";
  report->write(peaks, {stoppedBy ? signalName(stoppedBy) : nullptr,
                        notSaved.empty() ? failed : "the run's last state is not saved: " + notSaved});
}

/// Rank 0 writes what all ranks have recorded.
void Session::writeTrace() {
  comm.barrier();
  std::string mine;
  together([&] { mine = trace->json(comm.rank); });
  std::vector<int64_t> lengths(comm.ranks);
  int64_t length = mine.size();
  comm.exchange(&length, sizeof length, lengths.data());
  std::vector<std::string> all(comm.rank == 0 ? comm.ranks : 0);
  for (int r = 1; r < comm.ranks; ++r) {
    if (comm.rank == 0)
      all[r].resize(lengths[r]);
    comm.bring(r, mine.data(), comm.rank == 0 ? all[r].data() : nullptr, lengths[r]);
  }
  if (comm.rank == 0)
    all[0] = std::move(mine);
  together([&] {
    if (comm.rank == 0)
      writeTrace(all);
  });
}

void Session::writeTrace(const std::vector<std::string> &ofRanks) {
  auto write = [&](const std::string &text) { traceFile.write(text.data(), text.size()); };
  write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
  for (const std::string &events : ofRanks)
    write((&events == &ofRanks[0] ? "" : ",\n") + events);
  write("\n]}\n");
  traceFile.commit();
  if (trace->lost())
    log->warn(format("the trace lacks %lld spans, for which there was no room; give fewer steps with --trace-steps",
                     static_cast<long long>(trace->lost())));
}

// ---- checkpoints

/// Whether a checkpoint is to be begun behind so many steps: every rank says the same.
bool Session::isSaveDue(int64_t done) {
  if (!checkpoints)
    return false;
  saves.clear();
  int64_t signals = 0;
  for (const StepEnd &end : ends) {
    saves.push_back(end.save);
    signals = std::max(signals, end.saveSignals);
  }
  checkpoints->settle(saves);
  bool isAsked = signals > saveSignals;
  saveSignals = std::max(signals, saveSignals);
  return isAsked || done == steps || stoppedBy || (o.saveEvery && done % o.saveEvery == 0);
}

void Session::save(int64_t done) {
  Manifest m;
  m.model = p.model;
  m.modelHash = modelHash(p);
  m.graphHash = graphHash(p);
  m.optimizer = p.optimizer ? p.optimizer : "";
  m.step = done;
  m.skipped = skippedBefore + integerAt(p.skipped);
  m.samples = (firstBatch + (done - first) * p.grad_accum * comm.ranks) * data->batchRows();
  m.tokens = p.tokens ? m.samples * (p.tokens->t.ndim ? p.tokens->t.dims[p.tokens->t.ndim - 1] : 1) : 0;
  m.dataSamples = data->samples();
  m.seed = o.seed;
  m.shuffle = o.shuffle;
  m.ranks = comm.ranks;
  m.zero = p.zero;
  checkpoints->begin(m);
}

void Session::finishSaving() {
  if (checkpoints)
    checkpoints->finish();
}

Session::TrafficMark Session::mark() const { return {traffic(), spaces->diskTraffic()}; }

/// What has been sent, read and written since.
void Session::noteTraffic(StepReport &r, const TrafficMark &since) const {
  const auto [now, disk] = mark();
  const Traffic &then = since.sent;
  r.sent = {now.allReduce - then.allReduce, now.allGather - then.allGather, now.reduceScatter - then.reduceScatter};
  r.disk = {disk.read - since.disk.read, disk.written - since.disk.written};
}

/// Nothing where there are no data for it: then `failed` says why, and all is as it was before.
std::optional<StepReport> Session::trainStep(int64_t s) {
  double begin = now(), sum = 0;
  if (!succeeds([&] { loadBatches(s, 0); }))
    return std::nullopt;
  StepReport r;
  r.step = s;
  // Schedules count the steps that were taken.
  int64_t taken = s - skippedBefore - integerAt(p.skipped);
  r.lr = schedule.at(taken);
  const TrafficMark before = mark();
  setScalar(p.lr, static_cast<float>(*r.lr));
  if (schedule.cyclesMomentum())
    setScalar(p.beta1, static_cast<float>(schedule.beta1At(taken)));
  setScalar(p.step, s - skippedBefore);
  if (p.loss_scale >= 0)
    r.lossScale = arena->floatAt(p.loss_scale, ZCCRT_F32);
  const int64_t atOnce = p.batches_per_call;
  for (int64_t k = 0; k < p.grad_accum; k += atOnce) {
    setScalar(p.micro, k);
    zccrt_first = k == 0;
    zccrt_late = leavesUpdates && k == 0;
    setScalar<int64_t>(p.late, zccrt_late);
    if (k > 0)
      loadBatches(s, k);
    call(p.micro_fn, "micro-batch", k);
    for (int64_t i = 0; i < atOnce; ++i) {
      sum += arena->floatAt(p.loss, p.loss_elem, i);
      stepMetrics.addMicro(*arena, i);
    }
  }
  if (p.update)
    call(p.update, "update");
  leavesUpdates = p.flush != nullptr;
  const StepEnd mine = {sum, signalSeen(), saveSignalsSeen(), checkpoints ? checkpoints->status() : SaveStatus()};
  {
    TraceScope span(Lane::Program, "all ranks' losses");
    comm.exchange(&mine, sizeof mine, ends.data());
  }
  noteSignal();
  sum = 0;
  for (const StepEnd &end : ends)
    sum += end.loss;
  r.loss = sum / (double(p.grad_accum) * comm.ranks);
  r.metrics = stepMetrics.finish(r.loss);
  if (p.grad_norm >= 0)
    r.gradNorm = arena->floatAt(p.grad_norm, ZCCRT_F32);
  if (p.overflow >= 0)
    r.skipped = integerAt(p.overflow) > 0;
  checkGradients(r);
  noteTraffic(r, before);
  r.samples = data->batchRows() * p.grad_accum * comm.ranks;
  r.seconds = now() - begin;
  return r;
}

/// The batches of one call of @micro.
void Session::loadBatches(int64_t step, int64_t k) {
  TraceScope span(Lane::Program, "data", k);
  for (int64_t i = 0; i < p.batches_per_call; ++i)
    data->load(*arena, firstBatch + ((step - first) * p.grad_accum + k + i) * comm.ranks + comm.rank, i);
}

int64_t Session::integerAt(int64_t offset) const { return offset >= 0 ? arena->get<int64_t>(offset) : 0; }

/// The model's name of the first parameter, in its order, whose gradient is not finite; nullptr: all are.
const char *Session::firstNotFinite() const {
  for (int i = 0; p.grad_squares >= 0 && i < p.ngradients; ++i)
    if (!std::isfinite(arena->floatAt(p.grad_squares, ZCCRT_F32, i)))
      return p.gradients[i];
  return nullptr;
}

/// Ends the run on gradients that no loss scale helps. Every rank sees the same.
void Session::checkGradients(const StepReport &r) {
  constexpr int64_t kAtMinimum = 2;
  if (integerAt(p.overflow) != kAtMinimum)
    return;
  const char *name = firstNotFinite();
  together([&] {
    fail("the gradient of '%s' overflows, and the loss scale is at its minimum, %g; lower the "
         "learning rate, or compile with --dtype=bf16",
         name ? name : "some parameters together", *r.lossScale);
  });
}

/// What a sum of that weight is divided by.
double Session::divisorOf(double weight) const { return p.weight_floor > 0 ? std::max(weight, p.weight_floor) : weight; }

/// This rank's part of the loss over all samples, of a batch of which so many rows count; `counted`: the rows by which @eval
/// divides, 0: those that there are.
Weighted Session::lossOf(int64_t rows, int64_t counted) const {
  const zccrt_tensor &t = p.outputs[0].t;
  double loss = arena->floatAt(t.offset, t.elem);
  if (!rows)
    return {};
  if (p.weight) {
    double weight = arena->floatAt(p.weight->t.offset, p.weight->t.elem);
    double divisor = divisorOf(weight);
    return divisor == 0 ? Weighted() : Weighted{loss * divisor, weight}; // nothing counts: 0 / 0
  }
  return {loss * static_cast<double>(counted ? counted : rows), static_cast<double>(rows)};
}

/// Every rank takes rank 0's values of what each has of its own (running statistics): all evaluate the model that --export
/// writes. So does PyTorch's DistributedDataParallel (broadcast_buffers). Returns the rank's own.
std::vector<char> Session::takeStatistics() {
  char chunk[4096];
  std::vector<char> own;
  const auto runs = heldRuns(p, comm.rank);
  if (std::any_of(runs.begin(), runs.end(), [](const HeldRun &h) { return h.saved.rank >= 0; }))
    finishSaving(); // it may still read them
  for (const HeldRun &h : runs) {
    if (h.saved.rank < 0)
      continue;
    Arena &in = spaces->arenas()[h.space];
    const int64_t end = h.offset + h.saved.run.count * elemBytes(h.saved.elem);
    for (int64_t at = h.offset, n; at < end; at += n) {
      n = std::min<int64_t>(sizeof chunk, end - at);
      in.copyFrom(chunk, at, n);
      own.insert(own.end(), chunk, chunk + n);
      comm.broadcast(chunk, n);
      in.copyTo(at, chunk, n);
    }
  }
  return own;
}

/// So that steps and checkpoints do not depend on what was evaluated in between.
void Session::putBackStatistics(const std::vector<char> &own) {
  int64_t from = 0;
  for (const HeldRun &h : heldRuns(p, comm.rank)) {
    if (h.saved.rank < 0)
      continue;
    const int64_t bytes = h.saved.run.count * elemBytes(h.saved.elem);
    spaces->arenas()[h.space].copyTo(h.offset, own.data() + from, bytes);
    from += bytes;
  }
}

void Session::evaluate(DataSet &set, Outputs *to, StepReport &report, int64_t &samples) {
  const std::vector<char> own = takeStatistics();
  try {
    evaluateRounds(set, to, report, samples);
  } catch (...) {
    putBackStatistics(own);
    throw;
  }
  putBackStatistics(own);
}

/// The mean loss over the samples of a data set, each once, and the metrics; nothing if the program computes no loss, or a signal
/// ends the run. Every rank runs as often as the others; what a rank computes beyond the last batch is not counted.
void Session::evaluateRounds(DataSet &set, Outputs *to, StepReport &report, int64_t &samples) {
  int64_t rounds = (set.rounds() + comm.ranks - 1) / comm.ranks;
  if (o.eval && o.steps >= 0)
    rounds = std::min(rounds, o.steps);
  const int64_t batch = set.batchRows();
  const int64_t counted = batch == p.batch ? p.batch : 0; // else no input that changes has the rows that @eval counts
  Weighted total;
  samples = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    int64_t first = i * comm.ranks, rows = set.rowsOf(first + comm.rank);
    if (p.batch)
      setScalar(p.rows, counted && rows ? rows : p.batch);
    together([&] { set.load(*arena, (first + comm.rank) % set.rounds()); });
    call(p.eval, "evaluation of a batch", i);
    if (p.has_loss) {
      const EvalEnd mine = {lossOf(rows, counted), signalSeen()};
      if (double divisor = divisorOf(mine.loss.weight); to && divisor != 0) {
        double mean = mine.loss.sum / divisor; // of the rows that count
        const zccrt_tensor &t = p.outputs[0].t;
        char narrow[8];
        convert(&mean, ZCCRT_F64, narrow, t.elem, 1);
        arena->copyTo(t.offset, narrow, elemBytes(t.elem));
      }
      evalMetrics.addEval(*arena, rows, counted);
      comm.exchange(&mine, sizeof mine, evalEnds.data());
      for (const EvalEnd &end : evalEnds) {
        total += end.loss;
        noteSignal(end.signal);
      }
      if (stoppedBy)
        return;
    }
    int64_t batches = std::min<int64_t>(comm.ranks, set.rounds() - first);
    if (to)
      to->add(*arena, batches, set.rowsOf(first + batches - 1), batch);
    for (int64_t r = 0; r < batches; ++r)
      samples += set.rowsOf(first + r);
  }
  if (!p.has_loss || !samples)
    return;
  report.evalLoss = total.sum / divisorOf(total.weight);
  report.evalMetrics = evalMetrics.finish(*report.evalLoss);
}

} // namespace zccrt
