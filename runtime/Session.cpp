// Starts a run, opens its data and outputs, and brings it to its end.
#include "runtime/Session.h"
#include "runtime/Device.h"
#include "runtime/Fail.h"
#include "runtime/Hash.h"
#include "runtime/Interrupt.h"
#include "runtime/Memory.h"
#include "runtime/Overwrites.h"
#include "runtime/StandardFiles.h"
#include "runtime/Weights.h"
#include "runtime/checkpoint/Recipe.h"
#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace zccrt {

Session::Session(const zccrt_program &p, const Options &o, const Launch &launch, Comm &comm)
    : p(p), o(o), launch(launch), comm(comm), files(p, o.weights), gathered(comm.ranks), ends(comm.ranks), evalEnds(comm.ranks),
      stepMetrics(p, comm), evalMetrics(p, comm) {
  saves.reserve(size_t(comm.ranks));
}

/// What goes wrong in it on this rank; "": nothing.
static std::string errorIn(const std::function<void()> &phase) {
  try {
    phase();
  } catch (const std::bad_alloc &) {
    return "out of memory";
  } catch (const PeerFailure &) { // nobody is there to agree with
    throw;
  } catch (const RankDied &) {
    throw;
  } catch (const std::exception &e) {
    return e.what();
  }
  return "";
}

/// Runs what may fail on some ranks only, then lets all know.
void Session::together(const std::function<void()> &phase) { comm.agree(errorIn(phase)); }

/// Likewise, in a step: whether it has failed on none; else `failed` says why. It allocates nothing where it has not.
bool Session::succeeds(const std::function<void()> &phase) {
  const std::string error = errorIn(phase);
  const double mine = !error.empty();
  comm.exchange(&mine, sizeof mine, gathered.data());
  if (std::all_of(gathered.begin(), gathered.end(), [](double failures) { return failures == 0; }))
    return true;
  attempt([&] { comm.agree(error); });
  return false;
}

/// What is due once all steps are done: what fails has been told, and the rest is done all the same.
void Session::attempt(const std::function<void()> &work) {
  try {
    work();
  } catch (const AgreedFailure &e) {
    if (failed.empty())
      failed = e.what();
  }
}

static SpaceOptions spaceOptions(const zccrt_program &p, const Options &o) {
  bool isDefault = o.nvmePaths.empty() && p.nvme_path;
  return {isDefault ? std::vector<std::string>{p.nvme_path} : o.nvmePaths, o.nvmeChecksum};
}

/// Which checkpoint the run goes on from, and what it says of options.
void Session::findResume(const GivenWeights &given) {
  auto tell = [&](int to, const std::string &text) {
    if (comm.rank == 0)
      writeAll(to, (text + "\n").data(), text.size() + 1);
  };
  auto warn = [&](const std::string &text) { tell(STDERR_FILENO, where.program + ": warning: " + text); };
  auto say = [&](const std::string &text) {
    if (!o.quiet)
      tell(STDOUT_FILENO, text);
  };
  resume = findCheckpoint(o, comm, say, warn);
  if (!resume)
    return;
  const Manifest &m = resume->manifest;
  if (given.areByName() && o.resume != "auto") // which first starts from them
    warn("--weights: parameters go on from checkpoint '" + resume->folder + "' instead");
  // One that was converted has taken no data yet, and what only draws tokens takes none.
  const bool trains = !o.eval && (!o.data.empty() || o.steps > 0 || o.epochs > 0), isOrdered = trains && m.dataSamples > 0;
  together([&] {
    resumedGlobals(p, *resume); // whether it is of this model
    for (const std::string &doubt : doubtsAbout(p, *resume))
      warn(doubt);
    if (isOrdered && o.isSeedGiven && o.seed != m.seed)
      fail("--seed=%lld: the run of checkpoint '%s' has the seed %lld; leave --seed out", static_cast<long long>(o.seed),
           resume->folder.c_str(), static_cast<long long>(m.seed));
    if (isOrdered && o.shuffle && !m.shuffle)
      fail("--shuffle: the run of checkpoint '%s' takes its data in order; leave --shuffle out", resume->folder.c_str());
  });
  if (isOrdered || !o.isSeedGiven)
    o.seed = m.seed;
  if (isOrdered)
    o.shuffle = m.shuffle;
  first = m.step;
}

void Session::start(const GivenWeights &given) {
  together([&] {
    if (p.abi != ZCCRT_ABI)
      fail("the program and its runtime are of different versions; compile again");
    if (p.ranks != comm.ranks)
      fail("compiled for %d rank%s, started with %d; start it with 'mpirun -n %d', or compile it "
           "for %d:\n  %s --ranks=%d",
           p.ranks, p.ranks == 1 ? "" : "s", comm.ranks, p.ranks, comm.ranks, p.compile_line, comm.ranks);
    checkCpu(p.isa);
  });
  findResume(given);
  together([&] {
    const int64_t needed = (p.device ? 0 : p.arena_bytes[kDevice]) + p.arena_bytes[kHost] + p.library_bytes +
                           (o.save.empty() ? 0 : p.save_bytes) + Trace::bytes(p, o);
    setAside(needed, p.host_budget);
    openData();
    if (!o.save.empty() && !data && o.resume.empty())
      fail("--save: this run does not train, there is nothing to save");
    countSteps();
    int64_t inflated = (data ? data->bytesInMemory() : 0) + (evalData ? evalData->bytesInMemory() : 0);
    checkMemory(needed, inflated, launch.ranksOnNode);
    openOutputs();
    for (const auto &[option, file] : {std::pair("trace", &o.trace), std::pair("report", &o.report)})
      if (!file->empty() && !data)
        fail("--%s: this run does not train, there are no steps to show", option);
    if (!o.trace.empty())
      trace = std::make_unique<Trace>(p, o, first, steps);
    if (o.generate)
      generator = std::make_unique<Generator>(p, o);
  });
  expectSame(given.hash);
  together([&] {
    if (comm.rank == 0)
      given.expectEqual();
  });
  std::vector<uint64_t> hashes;
  together([&] {
    if (p.device) {
      openDevice(p.device, launch.rankOnNode);
      device()->multipliesInTf32 = p.tf32;
    }
    spaces = std::make_unique<Spaces>(p, spaceOptions(p, o));
    useSpaces(spaces.get());
    arena = &spaces->arenas()[kDevice];
    std::vector<bool> resumed = resume ? resumedGlobals(p, *resume) : std::vector<bool>();
    hashes = loadWeights(p, spaces->arenas(), comm, files, o.seed, resumed);
    if (resume)
      loadCheckpoint(p, *resume, spaces->arenas(), comm.rank);
    skippedBefore = (resume ? resume->manifest.skipped : 0) - integerAt(p.skipped);
  });
  together([&] {
    checkHashes(p, hashes, comm, files, resume ? resumedGlobals(p, *resume) : std::vector<bool>());
    if (o.exportFile.empty() || comm.rank != 0) // where what is frozen is copied
      files.close();
    if (p.prepare)
      p.prepare();
  });
  openCheckpoints();
  announce(given);
}

void Session::openCheckpoints() {
  if (o.save.empty() || !data)
    return;
  auto warn = [](const std::string &text) {
    endDrawing();
    std::string line = warningText(text);
    writeAll(STDERR_FILENO, line.data(), line.size());
  };
  checkpoints = std::make_unique<Checkpoints>(p, o, comm, spaces->arenas(), resume, warn);
}

void Session::openData() {
  bool onlyWrites = o.steps < 0 && o.epochs < 0 && o.data.empty() && (!o.exportFile.empty() || o.generate);
  if (!o.eval && o.steps != 0 && !onlyWrites)
    data = std::make_unique<DataSet>(p, o.data, o);
  if (!o.eval && o.outputs.empty() && o.evalData.empty())
    return;
  Options inOrder = o;
  inOrder.shuffle = false;
  evalData = std::make_unique<DataSet>(p, o.evalData.empty() ? o.data : o.evalData, inOrder, restOfEvaluation());
}

/// The last samples, fewer than a batch, are evaluated where @eval can leave rows out, of every output that is asked for.
Rest Session::restOfEvaluation() const {
  bool canCut = o.outputs.empty() || !Outputs::mixed(p);
  return p.batch && canCut ? Rest::Pad : Rest::LeaveOut;
}

void Session::countSteps() {
  if (o.eval || !data)
    return;
  firstBatch = resume ? resume->manifest.samples / data->batchRows() : 0;
  if (int64_t before = resume ? resume->manifest.dataSamples : 0; before && data->samples() && before != data->samples())
    data->note(format("the data have %lld samples, those of checkpoint '%s' had %lld%s", static_cast<long long>(data->samples()),
                      resume->folder.c_str(), static_cast<long long>(before), o.shuffle ? "; their order is another one" : ""));
  if (resume && resume->manifest.samples % data->batchRows())
    data->note(format("checkpoint '%s' has taken %lld samples, which are no whole batches of %lld: some come again",
                      resume->folder.c_str(), static_cast<long long>(resume->manifest.samples),
                      static_cast<long long>(data->batchRows())));
  steps = o.steps;
  if (steps < 0) {
    int64_t batches = data->batches();
    // Of a run that goes on, what is left of the data.
    int64_t done = firstBatch;
    if (!batches && o.epochs < 0)
      fail("the data are the same for every step, so there is no epoch to end; give --steps=N");
    int64_t perStep = int64_t(p.grad_accum) * p.ranks;
    int64_t all;
    if (__builtin_mul_overflow(std::max<int64_t>(1, o.epochs), std::max<int64_t>(1, batches), &all))
      fail("--epochs=%lld: the steps of so many are beyond what can be counted", static_cast<long long>(o.epochs));
    steps = first + std::max<int64_t>(first ? 0 : 1, (all - done) / perStep);
    if (const int64_t taken = (steps - first) * perStep, left = all - done; batches && taken < left)
      data->note(format("%lld batches are left out of the last epoch: %lld make a step", static_cast<long long>(left - taken),
                        static_cast<long long>(perStep)));
    else if (batches && taken > left && steps > first)
      data->note(format("a step takes %lld batches, and there are %lld: some come twice", static_cast<long long>(perStep),
                        static_cast<long long>(left)));
  }
  if (resume && steps <= first)
    data->note(format("checkpoint '%s' has %lld steps: there is nothing to train%s", resume->folder.c_str(),
                      static_cast<long long>(first), o.save.empty() ? "" : ", and nothing is saved"));
  schedule = makeSchedule(p, o, steps);
  Schedule::Kind compiled;
  const bool wasToCycle = p.beta1 >= 0 && p.schedule && scheduleFromName(p.schedule, compiled) && compiled == Schedule::OneCycle;
  if (wasToCycle && !schedule.cyclesMomentum())
    o.warnings.push_back("the betas stay those of OneCycle's momentum, for which this program was compiled; compile it with "
                         "cycle_momentum false, or for this schedule, to have the configuration's");
}

ExportForm Session::exportForm() const {
  if (o.exportFormat == ExportFormat::Safetensors)
    return o.exportTies ? ExportForm::Safetensors : ExportForm::SafetensorsFirst;
  return o.exportTrainForm ? ExportForm::OnnxTrain : ExportForm::Onnx;
}

const GraphPart *Session::partToExport() const { return exportedPart ? &*exportedPart : nullptr; }

/// "'y' from 'a' and 'b'".
static std::string describe(const GraphPart &part) {
  std::string s = "'" + part.value + "' from ";
  for (size_t i = 0; i < part.inputs.size(); ++i)
    s += (i == 0 ? "'" : i + 1 < part.inputs.size() ? ", '" : " and '") + part.inputs[i] + "'";
  return part.inputs.empty() ? s + "no input" : s;
}

void Session::openOutputs() {
  if (!o.outputs.empty())
    outputs = std::make_unique<Outputs>(p, o.outputs, comm);
  if (!o.outputsOf.empty())
    exportedPart = graphPart(p, o.outputsOf);
  if (comm.rank != 0)
    return;
  if (!o.exportFile.empty()) {
    exportFile = OutFile(o.exportFile);
    exportFile.expectRoom(exportBytes(p, exportForm(), partToExport()));
  }
  if (!o.trace.empty())
    traceFile = OutFile(o.trace);
  if (!o.report.empty())
    report = std::make_unique<RunReport>(p, first, steps, o.report);
  Epochs epochs;
  if (const double batches = data ? data->batches() : 0; batches > 0) {
    epochs.steps = batches / (double(p.grad_accum) * p.ranks);
    epochs.before = firstBatch / batches - first / epochs.steps;
  }
  log = std::make_unique<Log>(p, o, first, steps, epochs, data != nullptr);
  if (o.exportFormat == ExportFormat::Safetensors && p.absent)
    log->say("note: " + o.exportFile + " will lack tensors that the model's file does not hold: " + p.absent);
  if (exportedPart)
    log->say("note: " + o.exportFile + " will compute " + describe(*exportedPart));
}

/// Every rank must run the same program on the same data, or they would wait for each other or train on something else.
void Session::expectSame(uint64_t weights) {
  constexpr const char *what[] = {"another program", "other data", "other evaluation data", "other weights"};
  constexpr int kCount = std::size(what);
  if (comm.ranks == 1)
    return;
  uint64_t mine[kCount] = {p.hash, 0, 0, weights};
  together([&] {
    mine[1] = data ? data->hash() : 0;
    mine[2] = evalData ? evalData->hash() : 0;
  });
  std::vector<uint64_t> all(kCount * comm.ranks);
  comm.exchange(mine, sizeof mine, all.data());
  together([&] {
    for (int r = 1; r < comm.ranks; ++r)
      for (int i = 0; i < kCount; ++i)
        if (all[kCount * r + i] != all[i])
          fail("rank %d runs with %s than rank 0", r, what[i]);
  });
}

/// Why samples are left out of an evaluation.
void Session::explainRest() {
  if (const char *name = p.batch && !o.outputs.empty() ? Outputs::mixed(p) : nullptr)
    log->say(format("note: they are left out of the evaluation because rows of output '%s' cannot be told apart", name));
  else if (!p.batch && p.batch_why)
    log->say(format("note: they are left out of the evaluation because %s", p.batch_why));
}

void Session::announce(const GivenWeights &given) {
  together([&] {
    if (log)
      log->begin();
  });
  std::string ofSpaces;
  for (const std::string &note : spaces->notes())
    ofSpaces += note + "\n";
  const std::vector<std::string> ofAll = comm.exchangeText(ofSpaces); // each has a disk, and perhaps a machine, of its own
  if (comm.rank != 0)
    return;
  for (const std::string &note : given.notes)
    log->say("note: " + note);
  for (auto *warnings : {&std::as_const(o).warnings, &given.warnings})
    for (const std::string &text : *warnings) {
      const std::string line = warningText(text);
      writeAll(STDERR_FILENO, line.data(), line.size());
    }
  for (const DataSet *set : {data.get(), evalData.get()})
    for (const std::string &note : set ? set->notes() : std::vector<std::string>())
      if (set == data.get() || !data || !o.evalData.empty())
        log->say("note: " + note);
  if (evalData && evalData->leftOut())
    explainRest();
  for (int rank = 0; rank < comm.ranks; ++rank)
    if (rank == 0 || ofAll[rank] != ofAll[0])
      for (const std::string &note : linesOf(ofAll[rank]))
        log->say((rank ? format("note: rank %d: ", rank) : "note: ") + note);
  int threads = threadsPerRank(p, launch);
  std::string line = format("%s: %d rank%s of %d thread%s, %.1f MiB each", where.program.c_str(), p.ranks,
                            p.ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", p.arena_bytes[0] / 1048576.0);
  if (resume)
    log->say("resumed from '" + resume->folder + "', behind step " + std::to_string(first));
  if (data)
    line += format(", %lld steps of %lld samples", static_cast<long long>(steps),
                   static_cast<long long>(data->batchRows() * p.ranks * p.grad_accum));
  log->say(line);
}

// ---- the whole program

static uint64_t commandHash(int argc, char **argv) {
  std::string text;
  for (int i = 1; i < argc; ++i)
    text += std::string(argv[i]) + '\0';
  return hashBytes(text.data(), text.size());
}

static void printHelp(const zccrt_program &p, Comm &comm) {
  std::string text = helpText(p), wrong;
  if (comm.rank == 0 && !writeAll(STDOUT_FILENO, text.data(), text.size()))
    wrong = format("cannot write to standard output: %s", strerror(errno));
  comm.agree(wrong);
}

static void describe(const zccrt_program &p, const Options &o, Comm &comm) {
  std::string wrong;
  try {
    if (comm.rank == 0)
      writeDurably(o.describe, recipeOf(p, o.weights));
  } catch (const Failure &e) {
    wrong = e.what();
  }
  comm.agree(wrong);
}

static GivenWeights givenWeights(const zccrt_program &p, const Options &o, Comm &comm) {
  std::optional<GivenWeights> given;
  std::string wrong;
  try {
    given.emplace(p, o.weights, o.weightsMap);
    checkOverwrites(given->program, o, given->ownFolder);
  } catch (const std::exception &e) {
    wrong = e.what();
  }
  comm.agree(wrong);
  return *std::move(given);
}

int runProgram(const zccrt_program &p, int argc, char **argv) {
  where = Where();
  std::string name = argc > 0 ? argv[0] : p.model;
  where.program = name.substr(name.rfind('/') + 1);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); // the write fails instead
  holdStandardFiles(UnheardErrors::Fail);
  onSignals(OnSignal::EndAtOnce);
  Launch launch = readLaunch();
  std::unique_ptr<Comm> comm;
  int status = 0;
  try {
    Options o;
    std::string wrong;
    try {
      o = parseOptions(p, argc, argv);
    } catch (const Failure &e) {
      wrong = e.what();
    }
    comm = joinJob(launch, o.comm, commandHash(argc, argv));
    comm->agree(wrong);
    if (!o.save.empty())
      takeSaveSignals();
    if (o.help) {
      printHelp(p, *comm);
    } else if (!o.describe.empty()) {
      describe(p, o, *comm);
    } else {
      GivenWeights given = givenWeights(p, o, *comm);
      o.weights = given.ownFolder;
      Session session(given.program, o, launch, *comm);
      session.start(given);
      std::string staged = startCollectives(*comm, {p.slots, p.most_parts, hasSpareCore(p, launch), o.comm, p.staging_bytes});
      if (!staged.empty() && comm->rank == 0)
        fputs(warningText("collectives go by way of the host's memory: " + staged).c_str(), stderr);
      status = session.run();
    }
    comm->barrier();
  } catch (const AgreedFailure &) {
    status = 1;
  } catch (const PeerFailure &) {
    endSilently();
  } catch (const RankDied &e) {
    endJob(e.what(), About::AnotherRank);
  } catch (const std::bad_alloc &) {
    endJob("out of memory");
  } catch (const std::exception &e) {
    endJob(e.what());
  }
  stopCollectives();
  exchangeDevice(nullptr); // CUDA does not outlive main
  leaveJob();
  return status;
}

} // namespace zccrt
