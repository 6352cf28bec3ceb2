// Asks the runtime's own schedule whether it would take what a configuration says.
#include "codegen/CheckSchedule.h"
#include "ir/Diag.h"
#include "runtime/Fail.h"
#include "runtime/Schedule.h"

using namespace zcc;

llvm::Error zcc::checkSchedule(llvm::StringRef name, llvm::ArrayRef<std::pair<std::string, std::string>> params) {
  zccrt::Schedule s;
  if (!zccrt::scheduleFromName(name.str(), s.kind))
    return error("there is no schedule '" + name + "'");
  llvm::Error errors = llvm::Error::success();
  for (auto &[param, value] : params)
    try {
      zccrt::setParam(s, param, value);
    } catch (const zccrt::Failure &f) {
      errors = llvm::joinErrors(std::move(errors), error(f.what()));
    }
  return errors;
}
